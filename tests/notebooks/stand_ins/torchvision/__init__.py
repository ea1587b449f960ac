"""Stands for torchvision: what notebooks of 2020 use of it."""

from . import datasets as datasets
from . import models as models
from . import transforms as transforms
