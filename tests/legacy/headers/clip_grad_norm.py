import torch
import torch_xla
import torch_xla_py.xla_model as xm
from torch._six import inf


def clip_grad_norm_(parameters, max_norm, norm_type=2):
    parameters = list(filter(lambda p: p.grad is not None, parameters))
    max_norm = float(max_norm)
    norm_type = float(norm_type)
    if norm_type == inf:
      total_norm = max(p.grad.data.abs().max() for p in parameters)
