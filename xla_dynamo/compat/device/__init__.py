"""The device `xla`: its registration with PyTorch, autocast, gradient scaling, steps."""
