# The calls that Accelerate and Lightning make around a training loop.
import contextlib

import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as xpl
import torch_xla.distributed.xla_backend
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr


class MpDeviceLoaderWrapper(xpl.MpDeviceLoader):
    def __init__(self, dataloader, device):
        super().__init__(dataloader, device)
        self._rng_types = ["torch"]

    def __iter__(self):
        return super().__iter__()

    @property
    def batch_sampler(self):
        return self._loader.batch_sampler

    @property
    def dataloader(self):
        return self._loader


def main(index):
    torch.distributed.init_process_group("xla", init_method="xla://")
    device = xm.xla_device()
    xm.set_replication(device, xm.get_xla_supported_devices())
    world = xr.world_size()
    torch.manual_seed(0)
    xm.set_rng_state(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 1))
    model = xmp.MpModelWrapper(model).to(device)
    ddp = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
    state = xm.send_cpu_data_to_device(optimizer.state_dict(), device)
    optimizer.load_state_dict(state)
    x = torch.randn(72, 4)
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    loader = MpDeviceLoaderWrapper(torch.utils.data.DataLoader(data, batch_size=16), device)
    print("batches", len(loader), loader.batch_sampler.batch_size)
    losses = []
    for epoch in range(6):
        total = 0.0
        for inputs, targets in loader:
            with torch.autocast("xla", dtype=torch.bfloat16):
                loss = torch.nn.functional.mse_loss(ddp(inputs), targets)
            loss.backward()
            gradients = xm._fetch_gradients(optimizer)
            xm.all_reduce("sum", gradients, scale=1.0 / world)
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach().float()
        xm.mark_step()
        gathered = xm.all_gather(total.reshape(1))
        losses.append(xm.mesh_reduce("loss", gathered.sum().item(), sum))
        torch.distributed.barrier()
    xm.rendezvous("accelerate.utils.wait_for_everyone")
    xm.save(xm._maybe_convert_to_cpu(ddp.module.state_dict()), "model.pt")
    state = torch.load("model.pt", weights_only=True)
    print("RESULT", losses[0], losses[-1], sorted({str(v.device) for v in state.values()}),
          sorted({str(v.dtype) for v in state.values()}))


if __name__ == "__main__":
    xmp.spawn(main, args=(), start_method="fork")
