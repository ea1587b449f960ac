"""Optimizers that skip a step on the device, given `found_inf`: SGD, Adam and AdamW."""

from __future__ import annotations

from .adam import Adam as Adam
from .adam import AdamW as AdamW
from .sgd import SGD as SGD
