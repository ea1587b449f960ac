"""Rules for torchvision's ops, by name: they apply where torchvision defines the ops.

Nothing here imports torchvision. The C++ kernels for the CPU are what the rules follow.
"""
