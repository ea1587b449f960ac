"""Device arrays are padded for a launch, and cut when a result is used; no program is needed."""

from __future__ import annotations

from typing import Any

import sympy
import torch

from xla_dynamo.backend.executable import padded_arrays, padded_layout
from xla_dynamo.backend.executable.padded_arrays import PaddedLaunch
from xla_dynamo.backend.passes.padding.layouts import plain, with_factors
from xla_dynamo.backend.passes.padding.plan import PaddedGraph, Plan, Result
from xla_dynamo.backend.runtime import pjrt, transfers

s, t = sympy.symbols("s0 s1", positive=True, integer=True)


def launched(real: dict[Any, int], given: list[Any]) -> tuple[PaddedLaunch, Any, list[Any]]:
    """A program that returns its first two arguments, and what it was given."""
    seen: list[Any] = []

    def run(arrays: list[Any]) -> list[Any]:
        seen.extend(arrays)
        return [arrays[0], arrays[1]]

    graph = PaddedGraph(
        Plan({s: 4, t: 4}, {}),
        ("x", "w", "n"),
        ((plain(s), plain(t)), (plain(2),), None),
        (Result((plain(s), plain(t))), Result((plain(2),))),
        ((torch.int64, (s, s * t)),),
        frozenset({s, t}),
    )
    device = pjrt.device("cpu", 0)
    launch = PaddedLaunch(run, graph, real, device)
    arrays = [transfers.upload(x, device) for x in given]
    return launch, launch(arrays), seen


def test_arguments_are_padded_and_results_keep_their_padding() -> None:
    x = torch.arange(6.0).view(3, 2)
    launch, results, seen = launched({s: 3, t: 2}, [x, torch.ones(2)])
    assert [None if each is None else tuple(each.shape) for each in seen] == [
        (4, 4),
        (2,),
        None,
        (2,),
    ]
    assert transfers.download(seen[3]).tolist() == [3, 6]
    assert list(launch.cuts) == [0], "the other has no padding"
    assert torch.equal(launch.cuts[0].host(results[0]), x)


def test_what_has_the_size_of_the_bucket_is_left_as_it_is() -> None:
    launch, _, seen = launched({s: 4, t: 4}, [torch.ones(4, 4), torch.ones(2)])
    assert launch.cuts == {}
    assert tuple(seen[0].shape) == (4, 4)


def test_elements_between_padding_are_cut() -> None:
    layout = padded_layout.Layout((with_factors(s * t, [s, t]),), {s: 3, t: 2}, {s: 4, t: 4})
    x = torch.arange(6.0)
    device = pjrt.device("cpu", 0)
    array = transfers.upload(layout.pad(x), device)
    assert torch.equal(padded_arrays.Cut(layout, device, None).host(array), x)
