import torch_xla.core.xla_model as xm
t = torch.randn(2, 2, device=xm.xla_device())
