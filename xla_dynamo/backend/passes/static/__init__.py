"""Passes on ATen graphs in which every size is a number."""
