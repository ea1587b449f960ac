"""Passes that keep XLA from changing the numbers of a static graph."""
