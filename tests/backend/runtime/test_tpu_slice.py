"""What a TPU slice is made of, and what libtpu is told in each process of it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from xla_dynamo.backend.runtime import tpu_slice
from xla_dynamo.backend.runtime.tpu_chips import Chips
from xla_dynamo.errors import NotAvailable

pytestmark = pytest.mark.spine
ONE = ("localhost",)


def found(chips: Chips, environment: Mapping[str, str], **metadata: str) -> tpu_slice.Slice:
    names = {name.replace("_", "-"): text for name, text in metadata.items()}
    return tpu_slice.find(chips, environment, names.get)


def test_one_host_as_kaggle_describes_it() -> None:
    environment = {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-8",
        "TPU_CHIPS_PER_HOST_BOUNDS": "2,4,1",
        "TPU_HOST_BOUNDS": "1,1,1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_WORKER_ID": "0",
        "TPU_PROCESS_ADDRESSES": "local",
        "CLOUD_TPU_TASK_ID": "0",
    }
    of = found(Chips(8, "v5e"), environment)
    assert of == tpu_slice.Slice(ONE, 0, tuple("01234567"), "2,4,1")
    addresses = [f"localhost:{8000 + i}" for i in range(8)]
    told = [tpu_slice.variables(of, i, addresses, environment) for i in range(8)]
    assert told[5] == {
        "TPU_VISIBLE_CHIPS": "5",
        "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1",
        "TPU_PROCESS_BOUNDS": "2,4,1",
        "TPU_PROCESS_ADDRESSES": ",".join(addresses),
        "TPU_PROCESS_PORT": "8005",
        "CLOUD_TPU_TASK_ID": "5",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }


@pytest.mark.parametrize(
    ("chips", "generation", "bounds"),
    [(1, "v6e", "1,1,1"), (4, "v3", "2,2,1"), (4, "v4", "2,2,1"), (8, "v6e", "2,4,1")],
)
def test_one_host_of_which_only_its_chips_are_known(
    chips: int, generation: str, bounds: str
) -> None:
    of = found(Chips(chips, generation), {"TPU_SKIP_MDS_QUERY": "1"})
    assert (of.bounds, of.processes, of.hosts) == (bounds, chips, ONE)


def test_some_of_its_chips() -> None:
    environment = {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_VISIBLE_DEVICES": "2,3",
        "TPU_PROCESS_BOUNDS": "1,1,1",
        "TPU_CHIPS_PER_PROCESS_BOUNDS": "2,2,1",
    }
    of = found(Chips(4, "v4"), environment)
    assert (of.chips, of.bounds, of.processes) == (("2", "3"), "1,2,1", 2)
    told = tpu_slice.variables(of, 1, ["localhost:1", "localhost:2"], environment)
    assert told["TPU_VISIBLE_CHIPS"] == told["TPU_VISIBLE_DEVICES"] == "3"


METADATA = """ACCELERATOR_TYPE: '{kind}'
CHIPS_PER_HOST_BOUNDS: '2,2,1'
HOST_BOUNDS: '{hosts}'
TPU_CHIPS_PER_PROCESS_BOUNDS: '2,2,1'
TPU_PROCESS_BOUNDS: '{hosts}'
WORKER_ID: '{worker}'
"""


@pytest.mark.parametrize(
    "workers", ["n:1:10.0.0.1,n:2:10.0.0.2,n:3:10.0.0.3,n:4:10.0.0.4", "w0,w1,w2,w3"]
)
def test_several_hosts_as_google_cloud_describes_them(workers: str) -> None:
    text = METADATA.format(kind="v4-32", hosts="1,1,4", worker=2)
    of = found(Chips(4, "v4"), {}, tpu_env=text, worker_network_endpoints=workers)
    assert of.hosts == tuple(worker.split(":")[-1] for worker in workers.split(","))
    assert (of.worker, of.bounds, of.processes) == (2, "2,2,4", 16)
    assert [of.task(local) for local in range(4)] == [8, 9, 10, 11]
    addresses = [f"{host}:{port}" for host in of.hosts for port in range(4)]
    told = tpu_slice.variables(of, 3, addresses, {})
    assert (told["CLOUD_TPU_TASK_ID"], told["TPU_VISIBLE_CHIPS"]) == ("11", "3")
    assert told["TPU_PROCESS_PORT"] == "3"


def test_several_hosts_as_kubernetes_describes_them() -> None:
    environment = {
        "TPU_WORKER_HOSTNAMES": "a,b",
        "TPU_WORKER_ID": "1",
        "TPU_PROCESS_BOUNDS": "1,2,1",
        "TPU_CHIPS_PER_PROCESS_BOUNDS": "2,2,1",
    }
    of = found(Chips(4, "v5e"), environment)
    assert of == tpu_slice.Slice(("a", "b"), 1, tuple("0123"), "2,4,1")


def test_a_slice_of_v3_is_in_a_table() -> None:
    text = "ACCELERATOR_TYPE: 'v3-32'\nWORKER_ID: '1'\n"
    of = found(Chips(4, "v3"), {}, tpu_env=text, worker_network_endpoints="a,b,c,d")
    assert (of.worker, of.bounds) == (1, "4,4,1")


@pytest.mark.parametrize(
    ("kind", "devices"), [("v2-8", 2), ("v3-8", 2), ("v4-8", 1), ("v5litepod-4", 1), ("", 1)]
)
def test_how_many_devices_a_chip_is_where_sys_does_not_tell(kind: str, devices: int) -> None:
    environment = {"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": kind}
    assert found(Chips(4), environment).devices == devices


@pytest.mark.parametrize(
    ("chips", "environment", "why"),
    [
        (Chips(4, "v4"), {}, "metadata server does not answer.*TPU_WORKER_HOSTNAMES=localhost"),
        (Chips(4, "v4"), {"TPU_WORKER_HOSTNAMES": "a,b"}, "TPU_WORKER_ID does not say which"),
        (
            Chips(4, "v4"),
            {"TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "0"},
            r"how 2 host\(s\) with 4 TPU chip\(s\) are arranged is not known",
        ),
        (Chips(3, "v5e"), {"TPU_SKIP_MDS_QUERY": "1"}, r"1 host\(s\) with 3 TPU chip"),
        (Chips(4, "tpu7x"), {"TPU_SKIP_MDS_QUERY": "1"}, "TPU7x"),
        (Chips(4, "v4"), {"MEGASCALE_NUM_SLICES": "2"}, "several slices"),
        (Chips(4, "v4"), {"MEGASCALE_COORDINATOR_ADDRESS": "a:1"}, "several slices"),
        (Chips(4), {"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "tpu7x-8"}, "TPU7x"),
    ],
)
def test_what_is_not_known_is_an_error(chips: Chips, environment: dict[str, str], why: str) -> None:
    with pytest.raises(NotAvailable, match=why):
        found(chips, environment)
