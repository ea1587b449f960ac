"""A script written for torch_xla, which may be installed too."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm

assert "xla_dynamo" in torch_xla.__file__, torch_xla.__file__
device = xm.xla_device()
model = torch.nn.Linear(8, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(3, 8)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = model(x.to(device)).pow(2).mean()
    loss.backward()
    xm.optimizer_step(optimizer, barrier=True)
    losses.append(loss.item())
assert losses[0] > losses[1] > losses[2], losses
print(losses)
