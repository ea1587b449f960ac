"""Checks for machines with an accelerator, by hand: python -m pytest tests/accelerator/cuda.py"""
