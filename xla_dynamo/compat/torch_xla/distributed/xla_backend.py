"""torch.distributed's backend "xla": DDP and collectives among the replicas.

    dist.init_process_group("xla", init_method="xla://")

Importing this registers the backend and the `xla://` rendezvous, whose store is PyTorch's own, on
rank 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from xla_dynamo.compat.recording import replicas

from . import _process_group
from ._process_group import ProcessGroupXla as ProcessGroupXla

_distributed: Any = dist


def _rendezvous(url: str, timeout: Any = None, **kwargs: Any) -> Iterator[tuple[Any, int, int]]:
    member = replicas.current()
    if member is None:
        rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        yield _distributed.HashStore(), rank, size
    else:
        yield _store(member), member.rank, member.world.size


def _store(member: replicas.Member) -> Any:
    """A store that all replicas share: rank 0 serves it, and does not end before all are there."""
    is_server = member.rank == 0
    host, store = "127.0.0.1", None
    if is_server:
        store = _distributed.TCPStore(host, 0, is_master=True, wait_for_workers=False)
    ports = member.world.exchange(member.rank, "xla://", store.port if store else 0)
    store = store or _distributed.TCPStore(host, ports[0], is_master=False)
    member.world.exchange(member.rank, "xla://, connected", None)
    return store


def new_xla_process_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    *,
    use_local_synchronization: bool = False,
) -> Any:
    """A group of some ranks."""
    return dist.new_group(ranks, backend=backend or "xla")


def _register() -> None:
    if "xla" not in dist.Backend.backend_list:
        make = _process_group.of_options
        dist.Backend.register_backend("xla", make, extended_api=True, devices="xla")
        _distributed.register_rendezvous_handler("xla", _rendezvous)


_register()
