"""torch.distributed's backend "xla", for a group of one process: DDP and collectives run.

    dist.init_process_group("xla", init_method="xla://")

Importing this registers the backend and the `xla://` rendezvous. With one member every collective
copies its input to its output; averages and sums change nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.futures import Future
from torch.utils import _pytree as pytree

from xla_dynamo.errors import DeviceUnavailable

Tensors = Sequence[torch.Tensor]
_c10d: Any = c10d
_Group: Any = _c10d.ProcessGroup  # whose type says more of argument names than callers rely on
_distributed: Any = dist


def _done(result: Any) -> Any:
    """A finished piece of work."""
    future: Future[Any] = Future()
    future.set_result(result)
    return _c10d._create_work_from_future(future)


class ProcessGroupXla(_Group):
    """A process group of one member.

    Raises:
        DeviceUnavailable: the group has more than one member.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        if size != 1:
            raise DeviceUnavailable(
                f"torch.distributed backend 'xla' has one replica here, asked for {size}; "
                "start one process, without torchrun --nproc_per_node."
            )
        super().__init__(rank, size)
        self.prefix_store = store
        self.timeout = timeout
        self._group_name = ""

    def getBackendName(self) -> str:
        """ "xla"."""
        return "xla"

    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    @property
    def group_name(self) -> str:
        """The name that PyTorch gave the group."""
        return self._group_name

    def allreduce(self, tensors: Tensors, *options: Any, **named: Any) -> Any:
        """The tensors as they are."""
        return _done(list(tensors))

    allreduce_coalesced = broadcast = reduce = allreduce

    def alltoall(self, outputs: Any, inputs: Any, *options: Any, **named: Any) -> Any:
        """Each tensor of `outputs`, in whatever lists it lies, becomes that of `inputs` there."""
        copies = pytree.tree_leaves(outputs)
        with torch.no_grad():
            for output, source in zip(copies, pytree.tree_leaves(inputs), strict=True):
                output.copy_(source.reshape(output.shape))
        return _done(copies)

    allgather = gather = reduce_scatter = scatter = alltoall
    allgather_coalesced = reduce_scatter_coalesced = alltoall
    # PyTorch's older and newer names.
    allgather_into_tensor_coalesced = reduce_scatter_tensor_coalesced = alltoall
    all_gather_single_coalesced = reduce_scatter_single_coalesced = alltoall
    _allgather_base = _reduce_scatter_base = alltoall_base = alltoall
    all_gather_single = reduce_scatter_single = all_to_all_single = alltoall

    def barrier(self, *options: Any, **named: Any) -> Any:
        """Nobody to wait for."""
        return _done([])

    def monitored_barrier(self, *options: Any, **named: Any) -> None:
        """Nobody to wait for."""

    def _alone(self, *arguments: Any) -> Any:
        raise DeviceUnavailable("send and recv need a second replica; there is one here.")

    send = recv = recv_anysource = _alone


def _rendezvous(url: str, **kwargs: Any) -> Iterator[tuple[Any, int, int]]:
    yield (
        _distributed.HashStore(),
        int(os.environ.get("RANK", 0)),
        int(os.environ.get("WORLD_SIZE", 1)),
    )


def new_xla_process_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    *,
    use_local_synchronization: bool = False,
) -> Any:
    """A group of the one rank there is."""
    return dist.new_group(ranks, backend=backend or "xla")


def _register() -> None:
    if "xla" not in dist.Backend.backend_list:
        dist.Backend.register_backend("xla", ProcessGroupXla, devices="xla")
        _distributed.register_rendezvous_handler("xla", _rendezvous)


_register()
