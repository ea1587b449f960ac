"""The forms that rules have on TPUs, where libtpu refuses the plain one, or is slow with it.

A form computes what the plain rule of the same name computes.
"""
