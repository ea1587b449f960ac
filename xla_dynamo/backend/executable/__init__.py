"""Compile static graphs, and call the executables on torch tensors or device arrays."""
