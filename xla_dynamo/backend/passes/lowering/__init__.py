"""Passes that shape a static graph for XLA, right before it becomes StableHLO."""
