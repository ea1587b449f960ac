"""Passes on functional ATen graphs whose sizes may be symbolic."""
