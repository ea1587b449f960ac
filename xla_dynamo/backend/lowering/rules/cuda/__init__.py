"""The forms that rules have on NVIDIA's GPUs, where a library has a kernel for all of an op.

A form computes what the plain rule of the same name computes.
"""
