"""Modules that PyTorch no longer has, for scripts of 2019."""
