"""Helpers for FX graphs: questions, edits, memory layout, ops that the host runs."""
