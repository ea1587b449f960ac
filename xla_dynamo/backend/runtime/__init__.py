"""Devices, buffers, executables of StableHLO modules, and their disk cache.

Nothing here knows about FX or ATen.
"""
