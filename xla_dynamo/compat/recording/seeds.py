"""The random state of each lazy device: an int that moves on with every draw."""

from __future__ import annotations

import torch

_MASK = 2**64 - 1
_states: dict[int, int] = {}


def next_seed(index: int) -> int:
    """A fresh seed for one random op of device `index` (the splitmix64 sequence of its state)."""
    state = (get_state(index) + 0x9E3779B97F4A7C15) & _MASK
    _states[index] = state
    mixed = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _MASK
    return mixed ^ (mixed >> 31)


def get_state(index: int) -> int:
    """The state of device `index`; at first PyTorch's own seed."""
    return _states.setdefault(index, torch.initial_seed() & _MASK)


def set_state(index: int, state: int) -> None:
    """Set the state of device `index`: the same state gives the same numbers."""
    _states[index] = int(state) & _MASK


def seed_all(seed: int) -> None:
    """Seed every lazy device, as torch.manual_seed does."""
    for index in [*_states, 0]:
        set_state(index, seed)
