"""torch.compile finds the backend of an installed wheel by its name alone."""

import sys

import torch

model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
x = torch.randn(3, 8)
compiled = torch.compile(model, backend="xla")
torch.testing.assert_close(compiled(x), model(x))
compiled(x).sum().backward()

xla_dynamo = sys.modules["xla_dynamo"]
assert "site-packages" in xla_dynamo.__file__, xla_dynamo.__file__
assert not xla_dynamo.counters(), xla_dynamo.counters()
for record in xla_dynamo.compiles():
    print(record)
