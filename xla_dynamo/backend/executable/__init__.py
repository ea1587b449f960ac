"""Static graph -> executable -> callable on torch tensors or device arrays."""
