"""The import names of torch_xla, and modules that old scripts expect."""
