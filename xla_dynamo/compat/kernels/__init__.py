"""Kernels of the lazy device for ops that are not recorded as they are called."""
