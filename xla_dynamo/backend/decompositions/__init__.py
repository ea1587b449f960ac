"""Decompositions of ATen ops: what AOTAutograd and the passes replace ops by."""
