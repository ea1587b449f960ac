"""Rules for ops that few programs use: they cover PyTorch's operator table and are kept apart."""
