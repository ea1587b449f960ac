"""Legacy steps that differ in sizes, by programs for buckets; padding spoils whatever reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
from torch import Tensor, nn

import xla_dynamo
import xla_dynamo.compat
from tests.backend.separate_memory import separate_memory as separate_memory
from tests.compat.loops import counting
from tests.like_eager.lazy import XLA
from xla_dynamo.backend.executable import padded_layout
from xla_dynamo.backend.metrics import BucketWarning
from xla_dynamo.compat.execution import size_templates

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _buckets(fresh_devices: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(padded_layout, "poison", True)
    size_templates._families.clear()  # other tests have programs of the same structure
    xla_dynamo.compat.set_option("bucket", "powers_of_two")
    yield
    xla_dynamo.compat.set_option("bucket", None)


class Images(nn.Module):
    """With running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)
        self.last = nn.Linear(2 * 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.max_pool2d(self.norm(self.conv(x)).relu(), 2).flatten(1))


class Block(nn.Module):
    """Causal attention with positions."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(9, 8), nn.Embedding(64, 8)
        self.norm, self.qkv, self.last = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 9)

    def forward(self, words: Tensor) -> Tensor:
        rows, length = words.shape
        x = self.words(words) + self.places.weight[:length]
        q, k, v = self.qkv(self.norm(x)).view(rows, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.last(x)


def images(n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 1, 6, 6, dtype=torch.float64), torch.randint(3, (n,))


def words(n: int) -> tuple[Tensor, Tensor]:
    return torch.randint(9, (4, n)), torch.randint(9, (4, n))


def trained(
    make: Callable[[], nn.Module],
    batch: Callable[[int], tuple[Tensor, Tensor]],
    sizes: list[int],
    device: torch.device,
) -> tuple[list[Any], int]:
    """Losses, parameters and outputs of an evaluation after steps of these sizes; the programs."""
    torch.manual_seed(0)
    model = make().double().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    with counting() as counts:
        for n in sizes:
            x, y = (t.to(device) for t in batch(n))
            optimizer.zero_grad()
            output = model(x)
            loss = F.cross_entropy(output.flatten(0, -2), y.flatten())
            loss.backward()
            optimizer.step()
            xm.mark_step()
            losses.append(loss.detach())
    model.eval()
    outputs = []
    with torch.no_grad():
        for n in sizes[-3:]:
            outputs.append(model(batch(n)[0].to(device)))
            xm.mark_step()
    state = list(model.state_dict().values())
    return [t.cpu() for t in (*losses, *state, *outputs)], counts.compiles


SIZES = [12, 12, 16, 9, 11, 10, 14, 13, 15, 7, 5, 6, 3]


@pytest.mark.parametrize(
    ("make", "batch"), [(Images, images), pytest.param(Block, words, marks=pytest.mark.slow)]
)
def test_a_training_loop_of_many_sizes(make: Any, batch: Any) -> None:
    expected, _ = trained(make, batch, SIZES, CPU)
    actual, compiled = trained(make, batch, SIZES, XLA)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-13)
    assert compiled == 4, "the first two steps are exact, the others of buckets 8 and 16"


def test_programs_say_what_they_are_for() -> None:
    weight = torch.ones(3, 4).to(XLA)
    met.clear_all()
    results = []
    for n in (9, 12, 10):
        results.append(F.linear(torch.ones(n, 4).to(XLA), weight))
        xm.mark_step()
    assert [tuple(result.shape) for result in results] == [(9, 3), (12, 3), (10, 3)]
    first, second = [record.reason for record in xla_dynamo.compiles()[-2:]]
    assert "bucket" not in first
    assert re.fullmatch(r"input \d .*linear at .* dimension 0: bucket 16 \(9..16\)", second)
    assert met.counter_value("UncachedCompile") == 2
    assert met.counter_value("BucketCompile") == 1
    assert met.counter_value("CachedCompile") == 1


def as_on_cpu(function: Callable[..., Tensor], cases: list[Any], programs: int) -> None:
    """Results are the CPU's, and this many programs were compiled."""
    with counting() as counts:
        for case in cases:
            torch.manual_seed(1)
            expected = function(CPU, case)
            torch.manual_seed(1)
            actual = function(XLA, case).cpu()
            torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-13)
    assert counts.compiles == programs


DATA = torch.linspace(-1, 1, 120, dtype=torch.float64).view(60, 2)


def data(device: torch.device) -> Tensor:
    return DATA if device == CPU else DATA.to(device)


def test_batches_of_a_resident_data_set_the_last_one_short() -> None:
    def rows(device: torch.device, case: tuple[int, int]) -> Tensor:
        start, count = case
        return data(device)[start : start + count].cumsum(0).mean(1)

    as_on_cpu(rows, [(0, 8), (8, 8), (16, 8), (24, 7), (31, 5), (0, 6), (50, 10)], 4)


def test_an_index_and_a_size_that_both_change() -> None:
    def element(device: torch.device, case: tuple[int, int]) -> Tensor:
        count, index = case
        return torch.randn(count, 3, dtype=torch.float64).to(device)[index] * 2

    as_on_cpu(element, [(n, i) for n in (5, 7, 6, 8) for i in (0, 2, 3, 4)], 3)


def test_sizes_that_follow_from_others() -> None:
    def parts(device: torch.device, n: int) -> Tensor:
        x = torch.randn(n, 3, dtype=torch.float64).to(device)
        head, tail = x[: n // 2], x[n // 2 :]
        ones = torch.ones(2 * n, device=device, dtype=torch.float64)
        return head.sum() - tail.sum() + ones.cumsum(0).mean() + x[-1].sum() + x.view(-1).var()

    # 12 = 2 * 6 and 16 = 2 * 8 leave open how odd sizes are halved.
    as_on_cpu(parts, [12, 16, 11, 13, 9, 10, 14, 15], 3)


def test_two_sizes_that_have_nothing_to_do_with_each_other() -> None:
    counts = {9: 3, 10: 8, 11: 4, 12: 11, 13: 2}

    def part(device: torch.device, n: int) -> Tensor:
        x = torch.randn(n, 3, dtype=torch.float64).to(device)
        return x[: counts[n]].sum() * x.mean()

    # In the first two windows, one might be 5 times the other less 42.
    as_on_cpu(part, [9, 10, 11, 12, 13, 9, 12], 4)


def test_windows_of_no_form_are_compiled_for_their_sizes() -> None:
    def steps(device: torch.device, n: int) -> Tensor:
        return torch.linspace(0, 1, n, device=device, dtype=torch.float64) * 2

    as_on_cpu(steps, [9, 10, 11, 9], 3)
    assert xla_dynamo.counters()["bucket.unfit"] == 2


def test_a_size_that_is_refused_has_exact_programs() -> None:
    def resized(device: torch.device, n: int) -> Tensor:
        x = torch.randn(1, 2, n, dtype=torch.float64).to(device)
        return F.interpolate(x, size=2 * n, mode="linear")

    with pytest.warns(BucketWarning, match="Compiled for exact sizes: input 0"):
        as_on_cpu(resized, [9, 10, 11], 3)


def test_sizes_one_and_zero_are_windows_of_their_own() -> None:
    def rows(device: torch.device, n: int) -> Tensor:
        x = torch.randn(n, 3, dtype=torch.float64).to(device)
        return (x - x.mean(0, keepdim=True)).exp().sum(0)

    as_on_cpu(rows, [9, 10, 1, 12, 0, 1, 3], 5)


def test_dropout_draws_the_numbers_of_the_exact_program() -> None:
    def dropped(n: int) -> Tensor:
        torch.manual_seed(n)
        xm.set_rng_state(n)
        x = torch.ones(n, 8, dtype=torch.float64).to(XLA)
        return (F.dropout(x, 0.25) + torch.rand(n, 1, device=XLA, dtype=torch.float64)).cpu()

    padded = [dropped(n) for n in (9, 12, 200, 16)]
    xla_dynamo.compat.set_option("bucket", None)
    torch.testing.assert_close(padded, [dropped(n) for n in (9, 12, 200, 16)], rtol=0, atol=0)
    assert 0.6 < (padded[2] > 1).double().mean() < 0.9


def test_a_result_that_grows_is_an_argument_of_the_next_window() -> None:
    cache = torch.zeros(5, 2, dtype=torch.float64)
    moved, row = cache.to(XLA), torch.ones(1, 2, dtype=torch.float64)
    with counting() as counts:
        for _ in range(8):
            moved = torch.cat([moved * 2, row.to(XLA)]).flip(0).flip(0)
            cache = torch.cat([cache * 2, row])
            xm.mark_step()
    assert torch.equal(moved.cpu(), cache)
    assert counts.compiles <= 4


def test_without_the_option_each_size_has_its_program() -> None:
    xla_dynamo.compat.set_option("bucket", None)
    weight = torch.ones(2, 2, dtype=torch.float64)
    as_on_cpu(lambda on, n: data(on)[:n] @ weight.to(on), [3, 5, 4, 5, 3], 3)


@pytest.mark.usefixtures("separate_memory")
def test_arrays_of_a_device_with_memory_of_its_own_stay_there() -> None:
    """Steps of new sizes go through the host once; the user reads what he reads."""
    weight = torch.randn(3, 4, dtype=torch.float64)
    moved_weight = weight.to(XLA)
    for n in (9, 12, 10, 10):
        x = torch.randn(n, 3, dtype=torch.float64)
        uploaded = x.to(XLA)
        xla_dynamo.reset_metrics()
        product = uploaded @ moved_weight
        xm.mark_step()
        sums = product.cumsum(0)  # of a result that has padding
        xm.mark_step()
        copied = xla_dynamo.transfers()
        torch.testing.assert_close(sums.cpu(), (x @ weight).cumsum(0))
        torch.testing.assert_close(product.cpu(), x @ weight)
    assert (copied.to_device, copied.to_host) == (0, 0)
    assert xla_dynamo.transfers().to_host == 1, "the other result was cut for the second step"


def test_steps_that_recur_and_need_no_padding_get_a_program_without_masks() -> None:
    def rows(device: torch.device, n: int) -> Tensor:
        return data(device)[:n].cumsum(0).softmax(0)

    before = len(xla_dynamo.compiles())
    for n, programs in ((5, 1), (7, 2), *[(8, 2)] * 8, (8, 3), (7, 3), (8, 3)):
        torch.testing.assert_close(rows(XLA, n).cpu(), rows(CPU, n), rtol=1e-12, atol=1e-13)
        assert len(xla_dynamo.compiles()) - before == programs, n
