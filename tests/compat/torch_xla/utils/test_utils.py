"""torch_xla.utils and torch_xla.test: the helpers that scripts import."""

from __future__ import annotations

import gzip
import re
import struct
import threading
import unittest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch._six
import torch_xla.test.test_utils as test_utils
import torch_xla.utils.checkpoint as checkpoint
import torch_xla.utils.closures as closures
import torch_xla.utils.dlpack as dlpack
import torch_xla.utils.gcsfs as gcsfs
import torch_xla.utils.keyd_queue as kq
import torch_xla.utils.utils as xu
from torch_xla.utils.buffer_donor_context import alias_with_buffer_donor_config
from torch_xla.utils.cached_dataset import CachedDataset
from torch_xla.utils.checkpoint_tagger import CheckpointTagger
from torch_xla.utils.tf_record_reader import TfRecordReader

from xla_dynamo.errors import XlaDynamoError

XLA = torch.device("xla:0")


def test_sample_generator_starts_anew() -> None:
    loader = xu.SampleGenerator(data="sample", sample_count=3)
    assert len(loader) == 3
    assert [list(loader), list(loader)] == [["sample"] * 3] * 2
    assert loader.next() == "sample"


def test_function_data_generator() -> None:
    loader = xu.FnDataGenerator(lambda x: x * 2, 4, torch.ones, dims=[3], count=2)
    pairs = list(loader)
    assert len(loader) == len(pairs) == 2
    assert pairs[0][0].shape == (4, 3)
    assert pairs[0][1].eq(2).all()


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBER", "0")
    assert xu.getenv_as("NUMBER", int) == 0
    assert xu.getenv_as("NUMBER", bool) is False
    assert xu.getenv_as("NUMBER", str, "x") == "0"
    assert xu.getenv_as("ABSENT", float, 2.5) == 2.5
    assert not xu.check_env_flag("NUMBER")
    assert xu.check_env_flag("ABSENT", "true")
    monkeypatch.setenv("NUMBER", "2")
    assert xu.check_env_flag("NUMBER")


def test_nested_data() -> None:
    assert xu.as_list(1) == [1]
    assert xu.as_list((1,)) == (1,)
    assert xu.shape([[1, 2, 3], [4, 5, 6]]) == [2, 3]
    with pytest.raises(AssertionError):
        xu.shape([[1], [2, 3]])
    assert xu.flatten_nested_tuple((1, [2, (3,)])) == (1, 2, 3)
    assert xu.list_copy_append((1,), 2) == [1, 2]


class Node:
    def __init__(self, value: Any) -> None:
        self.value = value
        self.me = self


class Wrapped(xu.DataWrapper):
    def __init__(self, tensors: list[Any]) -> None:
        self.tensors = tensors

    def get_tensors(self) -> list[Any]:
        return self.tensors

    def from_tensors(self, tensors: list[Any]) -> Any:
        return ("unwrapped", *tensors)


def is_int(value: Any) -> bool:
    return type(value) is int


def test_visiting_and_rewriting_parts() -> None:
    node = Node([1, {"a": (2, 3)}])
    seen: list[int] = []
    xu.for_each_instance([node, node, Wrapped([4])], is_int, seen.append)
    assert seen == [1, 2, 3, 4]
    made, wrapped = xu.for_each_instance_rewrite(
        [node, Wrapped([4])], is_int, lambda number: number * 10
    )
    assert made.value == [10, {"a": (20, 30)}]
    assert made.me is made  # cycles survive
    assert wrapped == ("unwrapped", 40)
    assert node.value == [1, {"a": (2, 3)}]
    assert xu.for_each_instance_rewrite({1, 2}, is_int, lambda n: n + 1) == {2, 3}
    tensor = torch.ones(1)
    assert xu.for_each_instance_rewrite((tensor, "x", None), is_int, str)[0] is tensor


def test_timing_and_printing(capsys: pytest.CaptureFixture[str]) -> None:
    assert xu.timed(lambda: 3, msg="three: ") == 3
    with xu.TimedScope("scope: ") as scope:
        scope.set_error("broken")
    assert re.fullmatch(r"three: \d+\.\d{3}ms\n", capsys.readouterr().err)
    assert xu.get_print_fn(debug=True) is xu.eprint
    assert xu.get_print_fn() is xu.null_print


def test_resources() -> None:
    ports = xu.get_free_tcp_ports(3)
    assert len(set(ports)) == 3
    assert xu.parallel_work(2, lambda a, b: a + b, [1, 2], [10, 20]) == [11, 22]
    with pytest.raises(ZeroDivisionError):
        xu.parallel_work(2, lambda a: 1 // a, [1, 0])
    folder = xu.TmpFolder()
    path = Path(folder.name)
    assert path.is_dir()
    del folder
    assert not path.exists()
    calls: list[int] = []
    lazy = xu.LazyProperty(lambda: calls.append(1) or "made")
    assert [lazy.value, lazy.value, calls] == ["made", "made", [1]]


def test_queues() -> None:
    queue = kq.Queue(maxsize=2)
    for item in "ab":
        queue.put(item)
    assert queue.max_size() == 2
    queue.close_write()
    assert [queue.get(), queue.get(), queue.get()] == ["a", "b", None]
    keyed = kq.KeydQueue(maxsize=1)
    keyed.put("x", 1)
    waiter = threading.Thread(target=lambda: found.append(keyed.get("y")))
    found: list[Any] = []
    waiter.start()
    keyed.put("y", 2)  # there is no room, but someone waits for it
    waiter.join(10)
    assert found == [2]
    assert keyed.get("x") == 1
    queue = kq.Queue(maxsize=1)
    queue.put("a")
    blocked = threading.Thread(target=queue.put, args=("b",))
    blocked.start()
    queue.close()
    blocked.join(10)
    assert not blocked.is_alive()


def test_closures_run_in_order_and_raise_later() -> None:
    handler = closures.AsyncClosureHandler(max_queue_size=4)
    done = threading.Event()
    order: list[int] = []
    handler.run_all([lambda: order.append(1), lambda: order.append(2), done.set])
    assert done.wait(10)
    assert order == [1, 2]
    handler.run(lambda: 1 // 0)
    handler._closures.join()
    with pytest.raises(ZeroDivisionError):
        handler.run(done.set)


def test_checkpoint_names() -> None:
    removed: list[str] = []
    tagger = CheckpointTagger(remover=removed.append)
    tagger.tag("latest", "a")
    tagger.tag("best", "a")
    tagger.tag("latest", "b")
    assert removed == []
    tagger.tag("best", "b")
    assert removed == ["a"]
    again = CheckpointTagger.load_from_json(tagger.save_to_json())
    assert again.tags == {"latest": "b", "best": "b"}


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointed_layers(use_reentrant: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Dropout(0.5))
    layer = layer.to(XLA)
    x = torch.randn(4, 3, device=XLA, requires_grad=True)
    gradients = []
    for run in (layer, lambda v: checkpoint.checkpoint(layer, v, use_reentrant=use_reentrant)):
        torch.manual_seed(5)
        layer.zero_grad()
        x.grad = None
        run(x).square().sum().backward()
        assert x.grad is not None
        gradients.append([x.grad.cpu(), *[p.grad.cpu() for p in layer.parameters()]])  # type: ignore[union-attr]
    for expected, found in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected)


def test_dlpack() -> None:
    x = torch.arange(6.0, device=XLA).reshape(2, 3)
    back = dlpack.from_dlpack(dlpack.to_dlpack(x))
    assert back.device == XLA
    assert back.tolist() == x.tolist()
    assert dlpack.from_dlpack(np.arange(3)).tolist() == [0, 1, 2]
    with alias_with_buffer_donor_config() as before:
        assert before is False


def test_a_dataset_is_cached(tmp_path: Path) -> None:
    class Slow:
        reads = 0

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            self.reads += 1
            return torch.full((2,), float(index)), index

    slow = Slow()
    cached = CachedDataset(slow, str(tmp_path), max_files_per_folder=2)
    assert [cached[1][1], cached[1][1], slow.reads] == [1, 1, 1]
    cached.warmup()
    assert slow.reads == 3
    alone = CachedDataset(None, str(tmp_path))
    assert len(alone) == 3
    assert [int(x[0]) for x, _ in alone] == [0, 1, 2]


def test_files(tmp_path: Path) -> None:
    path = str(tmp_path / "folder" / "file.txt")
    gcsfs.generic_write("text", path, makedirs=True)
    assert gcsfs.generic_read(path) == b"text"
    with gcsfs.generic_open(path) as file:
        assert file.read() == "text"
    assert gcsfs.stat(path).length == 4
    assert [found.path for found in gcsfs.list(str(tmp_path / "folder"))] == [path]
    gcsfs.remove(path)
    gcsfs.rmtree(str(tmp_path / "folder"))
    assert gcsfs.list(str(tmp_path)) == []
    assert gcsfs.is_gcs_path("gs://bucket/file")
    with pytest.raises(XlaDynamoError, match="google-cloud-storage"):
        gcsfs.read("gs://bucket/file")


def message(number: int, data: bytes) -> bytes:
    """A field of a protocol buffer that holds bytes."""
    size, head = len(data), b""
    while size >= 0x80:
        head, size = head + bytes([size & 0x7F | 0x80]), size >> 7
    return bytes([number << 3 | 2]) + head + bytes([size]) + data


def example(features: dict[str, bytes]) -> bytes:
    entries = [
        message(1, message(1, name.encode()) + message(2, feature))
        for name, feature in features.items()
    ]
    return message(1, b"".join(entries))


def record(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + bytes(4) + data + bytes(4)


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_tfrecords(tmp_path: Path, compression: str) -> None:
    features = {
        "image": message(1, message(1, bytes(range(200)))),
        "weights": message(2, message(1, struct.pack("<3f", 0.5, -1.0, 2.0))),
        "labels": message(3, message(1, b"\x07\x80\x01" + b"\xff" * 9 + b"\x01")),
        "label": message(3, b"\x08\x05"),
        "name": message(1, message(1, b"cat")),
    }
    content = record(example(features)) * 2
    path = tmp_path / "data.tfrecord"
    path.write_bytes(gzip.compress(content) if compression else content)
    reader = TfRecordReader(str(path), compression=compression, transforms={"name": "STR"})
    found = reader.read_example()
    assert found is not None
    assert found["image"].tolist() == list(range(200))
    assert found["weights"].tolist() == [0.5, -1, 2]
    assert found["labels"].tolist() == [7, 128, -1]
    assert found["label"].tolist() == [5]
    assert found["name"] == "cat"
    assert reader.read_record() == example(features)
    assert reader.read_example() is None


def test_a_truncated_tfrecord_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "data.tfrecord"
    path.write_bytes(record(b"abc")[:-6])
    with pytest.raises(ValueError, match="truncated"):
        TfRecordReader(str(path)).read_record()


class Writer:
    def __init__(self) -> None:
        self.written: list[Any] = []
        self.closed = False

    def add_scalar(self, *arguments: Any) -> None:
        self.written.append(arguments)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_training_prints(capsys: pytest.CaptureFixture[str]) -> None:
    writer = Writer()
    loss = torch.tensor(2.30626, device=XLA)
    test_utils.print_training_update(XLA, 0, loss, 23.888, 23.89, epoch=1, summary_writer=writer)
    test_utils.print_test_update(XLA, 97.5, epoch=2, step=3)
    test_utils.print_test_update(XLA, None)
    lines = [re.sub(r"\d\d:\d\d:\d\d", "T", line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "| Training Device=xla:0/0 Epoch=1 Step=0 Loss=2.30626 Rate=23.89 GlobalRate=23.89 Time=T",
        "| Test Device=xla:0/0 Step=3 Epoch=2 Accuracy=97.50 Time=T",
        "| Test Device=xla:0/0 Time=T",
    ]
    assert [name for name, _, _ in writer.written] == ["examples/sec", "average_examples/sec"]
    test_utils.write_to_summary(writer, 4, {"Accuracy": 1.0}, write_xla_metrics=True)
    assert ("Accuracy", 1.0, 4) in writer.written
    assert "aten_ops_sum" in {name for name, _, _ in writer.written}
    test_utils.close_summary_writer(writer)
    assert writer.closed
    assert test_utils.get_summary_writer(None) is None
    test_utils.write_to_summary(None, 1, {"ignored": 1})


def test_a_test_in_a_process_of_its_own() -> None:
    class Case(unittest.TestCase):
        @test_utils.mp_test
        def test_good(self) -> None:
            pass

        @test_utils.mp_test
        def test_bad(self) -> None:
            raise SystemExit(3)

    result = unittest.TestResult()
    Case("test_good").run(result)
    Case("test_bad").run(result)
    assert result.testsRun == 2
    assert len(result.failures) == 1


def test_what_torch_six_had() -> None:
    assert torch._six.inf == float("inf")
    assert isinstance("text", torch._six.string_classes)
    assert isinstance([], torch._six.container_abcs.Sequence)
