"""Stands for matplotlib: nothing is drawn."""
