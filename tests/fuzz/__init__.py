"""Random programs of PyTorch ops, run in eager and on XLA through both doors, and compared.

`generator` makes programs, `runner` runs and compares them, `script` writes one that disagrees as a
file that runs by itself. `python -m tests.fuzz` runs many; see CONTRIBUTING.md.
"""
