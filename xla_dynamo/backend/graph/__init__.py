"""Helpers for FX graphs: queries, edits, memory layout, ops that the host runs."""
