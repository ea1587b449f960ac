"""The forms that rules have on the CPU, where XLA's own are slow, or wrong: one file a family.

A form computes what the plain rule of the same name computes. Without this folder all rules would
still be right, but for the miscompilations that `_numerics.REWRITES` lists.
"""
