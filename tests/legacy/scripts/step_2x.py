# torch_xla 2.5 to 2.9: torch_xla.step, sync, compile, launch, amp.
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch_xla.amp import autocast, syncfree
from torch_xla.utils.checkpoint import checkpoint


class Decoder(nn.Module):
    def __init__(self, vocab_size=48, dim=16, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 2, 32, 0.0, batch_first=True) for _ in range(layers))
        self.head = nn.Linear(dim, vocab_size)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.head(x)


def train(index):
    assert xr.world_size() == 1 and xr.global_ordinal() == 0
    torch_xla.manual_seed(42)
    torch.manual_seed(42)
    device = torch_xla.device()
    model = Decoder().to(device)
    optimizer = syncfree.AdamW(model.parameters(), lr=1e-2)
    loader = pl.MpDeviceLoader(
        [torch.randint(0, 48, (4, 8), generator=torch.Generator().manual_seed(i % 2))
         for i in range(12)], device)
    losses = []

    def step_fn(ids):
        optimizer.zero_grad()
        with autocast(device):
            logits = model(ids)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
        loss.backward()
        found_inf = torch.isfinite(loss).logical_not().float()
        optimizer.step(found_inf=found_inf)
        return loss

    for ids in loader:
        with torch_xla.step():
            losses.append(step_fn(ids))
    compiled = torch_xla.compile(step_fn, full_graph=True, name="step_fn")
    for ids in loader:
        losses.append(compiled(ids))
    torch_xla.sync(wait=True)
    xm.wait_device_ops()

    @torch_xla.compile
    def evaluate(ids):
        with torch.no_grad():
            return (model(ids).argmax(-1) == ids).float().mean()

    accuracy = evaluate(ids)
    print("devices", torch_xla.devices(), torch_xla.device_count(), xr.device_type())
    print("RESULT", losses[0].item(), losses[-1].item(), accuracy.item())


if __name__ == "__main__":
    torch_xla.launch(train, args=())
