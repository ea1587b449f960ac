"""Three ways to compare with eager PyTorch: one rule, torch.compile, and the lazy device."""
