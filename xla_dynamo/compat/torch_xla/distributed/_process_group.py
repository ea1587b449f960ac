"""A process group of torch.distributed, whose collectives are recorded like those of xm."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.futures import Future
from torch.utils import _pytree as pytree

from xla_dynamo.backend.graph.process_groups import mesh_of
from xla_dynamo.compat.recording import replicas
from xla_dynamo.compat.values.hide_from_dynamo import hide_module
from xla_dynamo.errors import DeviceUnavailable, NotAvailable

from ..core import _collectives, _point_to_point, _rendezvous

Tensors = Sequence[torch.Tensor]
_c10d: Any = c10d
_Group: Any = _c10d.ProcessGroup  # whose type says more of argument names than callers rely on
_REDUCE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    _collectives.REDUCE_SUM: lambda rows: rows.sum(0, dtype=rows.dtype),
    _collectives.REDUCE_MUL: lambda rows: rows.prod(0, dtype=rows.dtype),
    _collectives.REDUCE_MIN: lambda rows: rows.amin(0),
    _collectives.REDUCE_MAX: lambda rows: rows.amax(0),
    _collectives.REDUCE_AND: lambda rows: functools.reduce(torch.bitwise_and, rows),
    _collectives.REDUCE_OR: lambda rows: functools.reduce(torch.bitwise_or, rows),
}
_KINDS = {
    dist.ReduceOp.SUM: _collectives.REDUCE_SUM,
    dist.ReduceOp.AVG: _collectives.REDUCE_SUM,
    dist.ReduceOp.PRODUCT: _collectives.REDUCE_MUL,
    dist.ReduceOp.MIN: _collectives.REDUCE_MIN,
    dist.ReduceOp.MAX: _collectives.REDUCE_MAX,
    dist.ReduceOp.BAND: _collectives.REDUCE_AND,
    dist.ReduceOp.BOR: _collectives.REDUCE_OR,
}


def done(result: Any) -> Any:
    """A finished piece of work: what is recorded needs no waiting for."""
    future: Future[Any] = Future()
    future.set_result(result)
    return _c10d._create_work_from_future(future)


class Receiving(_c10d.Work):
    """What is received when it is waited for: a replica may send before that."""

    def __init__(self, receive: Callable[[], int]) -> None:
        super().__init__()
        self._receive: Callable[[], int] | None = receive
        self._source = -1

    def wait(self, timeout: Any = None) -> bool:
        """Receive.

        Raises:
            ReplicaError: nothing comes.
        """
        if self._receive is not None:
            receive, self._receive = self._receive, None
            self._source = receive()
        return True

    def is_completed(self) -> bool:
        """Whether it was waited for."""
        return self._receive is None

    is_success = is_completed

    def source_rank(self) -> int:
        """The rank of the group that sent."""
        return self._source

    _source_rank = source_rank


class ProcessGroupXla(_Group):
    """The replicas `ranks`; by default all of them.

    Raises:
        DeviceUnavailable: there are not so many replicas.
        NotAvailable: they are no part of a regular mesh of all replicas.
    """

    def __init__(
        self, store: Any, rank: int, size: int, timeout: Any, ranks: Sequence[int] = ()
    ) -> None:
        there = replicas.size()
        if size > there or (not ranks and size not in (1, there)):
            raise DeviceUnavailable(
                f"torch.distributed backend 'xla' has {_count(there)} here, asked for {size}; "
                "start the processes by xmp.spawn(fn, nprocs=...)."
            )
        super().__init__(rank, size)
        self.prefix_store = store
        self.timeout = timeout
        self._group_name = ""
        self._ranks = tuple(ranks) or tuple(range(size))
        self._groups = None if size == there else mesh_of(ranks, there)

    def getBackendName(self) -> str:
        """ "xla"."""
        return "xla"

    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    @property
    def group_name(self) -> str:
        """The name that PyTorch gave the group."""
        return self._group_name

    def allreduce(self, tensors: Tensors, options: Any = None, **named: Any) -> Any:
        """Reduce each tensor in place."""
        kind, scale = self._reduction(options)
        for tensor in [t for t in tensors if _is_host(t)]:
            parts = self._host_rows(tensor)
            reduced = _REDUCE[kind](torch.stack(parts))
            tensor.copy_(reduced / len(parts) if scale != 1.0 else reduced)
        there = [tensor for tensor in tensors if not _is_host(tensor)]
        if self.size() > 1 and there:
            _collectives.all_reduce(kind, there, scale, self._groups)
        return done(list(tensors))

    allreduce_coalesced = allreduce

    @torch.no_grad()
    def reduce(self, tensors: Tensors, options: Any = None, **named: Any) -> Any:
        """allreduce, whose result the root keeps: the others' tensors stay as they are."""
        own = [tensor.clone() for tensor in tensors]
        self.allreduce(tensors, options)
        is_root = torch.tensor(self.rank() == getattr(options, "rootRank", 0), device="cpu")
        for tensor, before in zip(tensors, own, strict=True):
            # A value, not an if: replicas have one program.
            tensor.copy_(torch.where(is_root.to(tensor.device), tensor, before))
        return done(list(tensors))

    def broadcast(self, tensors: Tensors, options: Any = None, **named: Any) -> Any:
        """Overwrite the tensors by those of the root."""
        for tensor in [t for t in tensors if _is_host(t)]:
            tensor.copy_(self._host_rows(tensor)[options.rootRank])
        there = [tensor for tensor in tensors if not _is_host(tensor)]
        if self.size() > 1 and there:
            is_root = self.rank() == options.rootRank
            _collectives.broadcast_from(there, is_root, self._groups)
        return done(list(tensors))

    def allgather(self, outputs: Any, inputs: Any, *options: Any, **named: Any) -> Any:
        """outputs: for each input, a tensor for each rank, or one for all."""
        for output, source in zip(_listed(outputs), _listed(inputs), strict=True):
            self._fill(output, self._gathered(source))
        return done(pytree.tree_leaves(outputs))

    _allgather_base = allgather_coalesced = allgather_into_tensor_coalesced = allgather
    all_gather_single = all_gather_single_coalesced = allgather

    def gather(self, outputs: Any, inputs: Any, options: Any = None, **named: Any) -> Any:
        """allgather, of which the root keeps the result."""
        for number, source in enumerate(_listed(inputs)):
            gathered = self._gathered(source)
            if outputs:
                self._fill(outputs[number], gathered)
        return done(pytree.tree_leaves(outputs))

    def reduce_scatter(self, outputs: Any, inputs: Any, options: Any = None, **named: Any) -> Any:
        """inputs: for each output, a tensor for each rank, or one for all."""
        kind, scale = self._reduction(options)
        for output, source in zip(_listed(outputs), _listed(inputs), strict=True):
            whole = _rows(source, self.size())
            if _is_host(whole):
                reduced = _REDUCE[kind](torch.stack(self._host_rows(whole))) * scale
                whole = reduced.chunk(self.size())[self.rank()]
            elif self.size() > 1:
                args = kind, whole, scale, 0, self.size(), self._groups
                whole = _collectives.reduce_scatter(*args)
            self._fill(output, whole)
        return done(pytree.tree_leaves(outputs))

    _reduce_scatter_base = reduce_scatter_coalesced = reduce_scatter
    reduce_scatter_tensor_coalesced = reduce_scatter
    reduce_scatter_single = reduce_scatter_single_coalesced = reduce_scatter

    def scatter(self, outputs: Any, inputs: Any, options: Any = None, **named: Any) -> Any:
        """inputs: on the root, for each output a tensor for each rank."""
        for number, output in enumerate(outputs):
            is_root = self.size() == 1 or self.rank() == options.rootRank
            whole = _rows(inputs[number] if is_root else [output] * self.size(), self.size())
            if _is_host(whole):
                root = self._host_rows(whole)[options.rootRank if self.size() > 1 else 0]
                whole = root.chunk(self.size())[self.rank()]
            elif self.size() > 1:
                _collectives.broadcast_from([whole], is_root, self._groups)
                ranks, group = _collectives.flat(self._groups)
                whole = torch.ops.xla_dynamo.own_part(whole, 0, ranks, group)
            self._fill(output, whole)
        return done(list(outputs))

    def alltoall(self, outputs: Any, inputs: Any, *options: Any, **named: Any) -> Any:
        """A tensor for each rank goes to it, and one comes from it."""
        whole = _rows(list(inputs), self.size())
        self._fill(list(outputs), self._exchanged(whole))
        return done(list(outputs))

    def alltoall_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_sizes: Any = None,
        input_sizes: Any = None,
        *options: Any,
        **named: Any,
    ) -> Any:
        """Equal parts of `input` go to the ranks, and come from them.

        Raises:
            NotAvailable: the parts are of several sizes.
        """
        if len({*(output_sizes or ()), *(input_sizes or ())}) > 1:
            raise NotAvailable("all_to_all of parts of several sizes: pad them to one size.")
        self._fill(output, self._exchanged(_rows(input, self.size())))
        return done([output])

    all_to_all_single = alltoall_base

    def barrier(self, *options: Any, **named: Any) -> Any:
        """Wait for all of the group, after a barrier of the device."""
        if self.size() > 1:
            if self._groups is None:
                _rendezvous.rendezvous("torch.distributed.barrier")
            else:
                token = torch.zeros((), device="xla")
                _collectives.all_reduce(_collectives.REDUCE_SUM, [token], 1.0, self._groups)
                token.item()
        return done([])

    def monitored_barrier(self, *options: Any, **named: Any) -> None:
        """`barrier`."""
        self.barrier()

    def send(self, tensors: Tensors, to: int, tag: int = 0) -> Any:
        """Send tensors to a rank of the group, which may receive them later."""
        for tensor in tensors:
            _point_to_point.send_to(self._address(self.rank(), to, tag), tensor)
        return done(list(tensors))

    def recv(self, tensors: Tensors, source: int, tag: int = 0) -> Any:
        """Overwrite tensors by those that a rank sends, when the result is waited for."""
        address = self._address(source, self.rank(), tag)
        numbered = [(_point_to_point.reserve(address), tensor) for tensor in tensors]

        def receive() -> int:
            for number, tensor in numbered:
                _point_to_point.receive_from(address, number, tensor)
            return source

        return Receiving(receive)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Any:
        """The same from whichever rank sends first."""
        others = [rank for rank in range(self.size()) if rank != self.rank()]
        addresses = [self._address(rank, self.rank(), tag) for rank in others]

        def receive() -> int:
            which = _point_to_point.receive_from_any(addresses, tensors[0])
            return others[which]

        return Receiving(receive)

    def _address(self, source: int, to: int, tag: int) -> str:
        """Of messages between two ranks of the group."""
        name = f"{self._ranks[source]} to {self._ranks[to]}"
        return f"rank {name}, tag {tag}, group {'-'.join(map(str, self._ranks))}"

    def _reduction(self, options: Any) -> tuple[str, float]:
        """The kind of a reduction, and the scale of its result."""
        op = getattr(options, "reduceOp", dist.ReduceOp.SUM)
        kind = next((kind for known, kind in _KINDS.items() if op == known), None)
        if kind is None:
            raise NotAvailable(f"{op} is no reduction of XLA.")
        return kind, 1 / self.size() if op == dist.ReduceOp.AVG else 1.0

    def _gathered(self, source: torch.Tensor) -> torch.Tensor:
        rows = source if source.dim() else source.unsqueeze(0)
        if _is_host(source):
            return torch.cat(self._host_rows(rows))
        return rows if self.size() == 1 else _collectives.all_gather(rows, 0, self._groups)

    def _host_rows(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """A CPU tensor of each rank, such as all_gather_object sends: no program is made for it."""
        member = replicas.current()
        if member is None or self.size() == 1:
            return [tensor]
        own = tensor.detach().clone()
        return member.world.exchange(member.rank, "a CPU tensor", own, self._ranks)

    def _exchanged(self, whole: torch.Tensor) -> torch.Tensor:
        if _is_host(whole):
            rows = self._host_rows(whole)
            return torch.cat([row.chunk(self.size())[self.rank()] for row in rows])
        return _collectives.all_to_all(whole, 0, 0, self.size(), self._groups)

    def _fill(self, output: Any, whole: Any) -> None:
        """Copy rows of a tensor into one, or into one for each rank."""
        with torch.no_grad():
            if isinstance(output, torch.Tensor):
                output.copy_(whole.reshape(output.shape))
                return
            for tensor, part in zip(output, whole.chunk(len(output)), strict=True):
                tensor.copy_(part.reshape(tensor.shape))


def _is_host(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def _count(number: int) -> str:
    return "one replica" if number == 1 else f"{number} replicas"


def _listed(given: Any) -> list[Any]:
    return [given] if isinstance(given, torch.Tensor) else list(given)


def _rows(given: Any, count: int) -> torch.Tensor:
    """Tensors, or one, as rows, of which each rank has as many."""
    if isinstance(given, torch.Tensor):
        return given if given.dim() and given.shape[0] % count == 0 else given.reshape(count, -1)
    return torch.stack([tensor.detach() for tensor in given])


def of_options(options: Any, more: Any = None) -> ProcessGroupXla:
    """What torch.distributed calls to make a group of this backend."""
    ranks = list(getattr(options, "global_ranks_in_group", ()) or ())
    return ProcessGroupXla(
        options.store, options.group_rank, options.group_size, options.timeout, ranks
    )


hide_module(sys.modules[__name__])  # DDP's reducer calls it, within what torch.compile looks at
