"""The TPU slice that this host is part of, and what libtpu reads of each of its processes.

One process drives one chip. libtpu learns from environment variables how the processes' chips are
arranged, and where the others are; it has to find them when it is loaded. What a slice is comes
from the variables of GKE, Kaggle and the like, or from Google Cloud's metadata server.
"""

from __future__ import annotations

import math
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from xla_dynamo.errors import NotAvailable

from . import tpu_chips
from .tpu_chips import Chips

# How the chips of one host are arranged, by their number.
_OF_ONE_HOST = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}
# How the hosts are arranged where nothing else tells; each has 2 x 2 chips.
_HOSTS = {
    **dict.fromkeys(("v2-8", "v3-8"), "1,1,1"),
    **dict.fromkeys(("v2-32", "v3-32"), "2,2,1"),
    "v3-64": "2,4,1",
    **dict.fromkeys(("v2-128", "v3-128"), "4,4,1"),
    **dict.fromkeys(("v2-256", "v3-256"), "4,8,1"),
    **dict.fromkeys(("v2-512", "v3-512"), "8,8,1"),
    "v3-1024": "8,16,1",
    "v3-2048": "16,16,1",
}
_METADATA = "http://metadata.google.internal/computeMetadata/v1/instance/attributes/"
_SECONDS = 3.0


@dataclass(frozen=True)
class Slice:
    """A TPU slice, seen from one of its hosts.

    hosts: their addresses, in order. worker: which of them this is. chips: the numbers of this
    host's chips, as many as each has. bounds: how all chips are arranged, such as "2,2,1".
    devices: how many each chip is to PJRT.
    """

    hosts: tuple[str, ...]
    worker: int
    chips: tuple[str, ...]
    bounds: str
    devices: int = 1

    @property
    def processes(self) -> int:
        """One for each chip of all hosts."""
        return len(self.hosts) * len(self.chips)

    def task(self, local: int) -> int:
        """The number, among all, of this host's process number `local`."""
        return self.worker * len(self.chips) + local


def find(
    chips: Chips,
    environment: Mapping[str, str],
    ask: Callable[[str], str | None] | None = None,
) -> Slice:
    """The slice of a host with `chips`.

    ask: for what the metadata server tells of this host by a name; None if it does not.

    Raises:
        NotAvailable: what is known does not say which hosts there are, or how chips are arranged.
    """
    _refuse_what_is_not_known(chips.generation, environment)
    told = _told(environment, ask or _of_metadata)
    if not chips.generation:  # /sys does not tell it, as in some containers
        chips = replace(chips, generation=_generation(told.get("ACCELERATOR_TYPE", "")))
        _refuse_what_is_not_known(chips.generation, environment)
    hosts = tuple([host for host in told.get("HOSTS", "").split(",") if host]) or ("localhost",)
    hosts = ("localhost",) if len(hosts) == 1 else hosts
    visible = _visible(chips, environment)
    bounds = _bounds(told, len(hosts), len(visible), whole=len(visible) == chips.count)
    worker = int(told.get("WORKER_ID") or 0)
    return Slice(hosts, worker, visible, bounds, chips.devices_of_each)


def _refuse_what_is_not_known(generation: str, environment: Mapping[str, str]) -> None:
    slices = environment.get("MEGASCALE_NUM_SLICES") or "1"
    alone = slices == "1" and not environment.get("MEGASCALE_COORDINATOR_ADDRESS")
    if generation == "tpu7x" or not alone:
        raise NotAvailable(
            "a process for each chip of TPU7x, or of several slices: how libtpu is to be told of "
            "them is not known here. Use one process for each host, in SPMD mode (xr.use_spmd())."
        )


def _generation(kind: str) -> str:
    """That of an accelerator such as "v3-8", as far as it matters how many devices a chip is."""
    name = kind.lower().partition("-")[0].removeprefix("tpu")
    if name.lstrip("v").startswith("7"):
        return "tpu7x"
    return "v3" if name in ("v2", "v3") else name


def variables(
    of: Slice, local: int, addresses: Sequence[str], environment: Mapping[str, str]
) -> dict[str, str]:
    """What libtpu reads in this host's process number `local`.

    addresses: "host:port" of all processes, by task.
    environment: that of the process.
    """
    chip = of.chips[local]
    aliases = {"TPU_VISIBLE_DEVICES": chip} if "TPU_VISIBLE_DEVICES" in environment else {}
    return {
        "TPU_VISIBLE_CHIPS": chip,
        **aliases,
        "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1",
        "TPU_PROCESS_BOUNDS": of.bounds,
        "TPU_PROCESS_ADDRESSES": ",".join(addresses),
        "TPU_PROCESS_PORT": addresses[of.task(local)].rpartition(":")[2],
        "CLOUD_TPU_TASK_ID": str(of.task(local)),
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }


def _visible(chips: Chips, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The numbers of the chips that the user wants to be used."""
    chosen = environment.get("TPU_VISIBLE_CHIPS") or environment.get("TPU_VISIBLE_DEVICES")
    return tuple(chosen.split(",")) if chosen else tuple(map(str, range(chips.count)))


def _told(environment: Mapping[str, str], ask: Callable[[str], str | None]) -> dict[str, str]:
    """What is known of the slice, by the names that the metadata server has.

    TPU_SKIP_MDS_QUERY, to libtpu as well, says that there is no such server.

    Raises:
        NotAvailable: neither says which hosts there are.
    """
    if "TPU_SKIP_MDS_QUERY" in environment or "TPU_WORKER_HOSTNAMES" in environment:
        return _of_environment(environment)
    attributes, workers = ask("tpu-env"), ask("worker-network-endpoints")
    if attributes is None or workers is None:
        raise NotAvailable(
            "which hosts this TPU slice has is not known: TPU_WORKER_HOSTNAMES is not set, and "
            "Google Cloud's metadata server does not answer. If it is this host alone, set "
            "TPU_WORKER_HOSTNAMES=localhost TPU_WORKER_ID=0; else the names of all hosts, and "
            "which of them this is."
        )
    pairs = (line.partition(":") for line in attributes.splitlines() if ":" in line)
    told = {name.strip().removeprefix("TPU_"): value.strip(" '\"") for name, _, value in pairs}
    # Each is a name, or formerly "name:id:address".
    told["HOSTS"] = ",".join(worker.split(":")[-1] for worker in workers.split(","))
    return told


def _of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    named = {k.removeprefix("TPU_"): v for k, v in environment.items() if k.startswith("TPU_")}
    hosts = named.get("WORKER_HOSTNAMES", "")
    if len(hosts.split(",")) > 1 and not named.get("WORKER_ID"):
        raise NotAvailable(
            f"TPU_WORKER_HOSTNAMES={hosts} names several hosts, and TPU_WORKER_ID does not say "
            "which of them this is: set it to 0, 1, ... on each."
        )
    return {**named, "HOSTS": hosts}


def _of_metadata(name: str) -> str | None:
    request = urllib.request.Request(_METADATA + name, headers={"Metadata-Flavor": "Google"})
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            return answer.read().decode()
    except (urllib.error.URLError, OSError):
        return None


def _bounds(told: Mapping[str, str], hosts: int, chips: int, *, whole: bool) -> str:
    """How the chips of all hosts are arranged; `whole` if none of them is left out.

    Raises:
        NotAvailable: it is not known.
    """
    of_hosts = told.get("PROCESS_BOUNDS") or told.get("HOST_BOUNDS")
    of_chips = told.get("CHIPS_PER_PROCESS_BOUNDS") or told.get("CHIPS_PER_HOST_BOUNDS")
    kind = told.get("ACCELERATOR_TYPE", "")
    if kind in _HOSTS and not of_chips:
        of_hosts, of_chips = _HOSTS[kind], "2,2,1"
    if of_hosts and of_chips and whole:
        product = [a * b for a, b in zip(_sizes(of_hosts), _sizes(of_chips), strict=True)]
        if math.prod(product) == hosts * chips:
            return ",".join(map(str, product))
    if hosts == 1 and chips in _OF_ONE_HOST:
        return _OF_ONE_HOST[chips]
    raise NotAvailable(
        f"how {hosts} host(s) with {chips} TPU chip(s) are arranged is not known: "
        f"TPU_PROCESS_BOUNDS is {of_hosts!r}, TPU_CHIPS_PER_PROCESS_BOUNDS is {of_chips!r}, the "
        f"accelerator {kind!r}. Set the two, such as 2,2,1: their product is the number of chips."
    )


def _sizes(bounds: str) -> list[int]:
    return [int(size) for size in re.findall(r"\d+", bounds)]


def here() -> Slice:
    """The slice of this host, by the environment of this process: see `find`."""
    return find(tpu_chips.here(), os.environ)
