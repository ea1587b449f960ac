"""The operator sweep: PyTorch's operator database through the backend, against eager."""
