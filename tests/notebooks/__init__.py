"""Runs notebooks of a torch_xla checkout: see __main__."""
