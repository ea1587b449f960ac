"""Uses of names, by every way that Python has to write them."""

from __future__ import annotations

import pytest

from xla_dynamo.check.scan import scan

XM = "torch_xla.core.xla_model"


def uses(text: str) -> list[tuple[int, str]]:
    return [(use.line, use.name) for use in scan(text).uses if use.name.startswith("torch_xla")]


@pytest.mark.parametrize(
    "text",
    [
        f"import {XM} as xm\nxm.mark_step()",
        f"import {XM}\n{XM}.mark_step()",
        "from torch_xla.core import xla_model\nxla_model.mark_step()",
        f"from {XM} import mark_step as done\ndone()",
        f"import {XM}; xm = {XM}\nxm.mark_step()",
        f"import {XM} as m; n = m; xm = n\nxm.mark_step()",
        f"import {XM} as xm; mark = xm.mark_step\nmark()",
        f"try:\n  import {XM} as xm\nexcept ImportError:\n  xm = None\nxm.mark_step()",
        f"def f():\n  import {XM} as xm\n  xm.mark_step()",
        f"import {XM} as xm\nclass A:\n  step = staticmethod(xm.mark_step)",
        f"import {XM} as xm\n@xm.mark_step\ndef f(): pass",
        f"import {XM} as xm\nf = lambda x: [xm.mark_step() for _ in x]",
    ],
)
def test_a_use_is_found_by_any_way(text: str) -> None:
    found = uses(text)
    last = len(text.splitlines())
    assert (last, f"{XM}.mark_step") in found or (last - 1, f"{XM}.mark_step") in found


@pytest.mark.parametrize(
    "text",
    [
        f"import {XM} as xm\ndef f(xm):\n  xm.mark_step()",  # a parameter
        f"def f():\n  import {XM} as xm\ndef g():\n  xm.mark_step()",  # of another function
        "xm.mark_step()",
        "from .torch_xla.core import xla_model as xm\nxm.mark_step()",
        f"import {XM} as xm\nxm = xm_of_mine()\n'xm.mark_step()'",
    ],
)
def test_other_names_are_not_taken_for_it(text: str) -> None:
    assert not any(name.endswith("mark_step") for _, name in uses(text))


def test_a_call_comes_with_its_arguments() -> None:
    (call,) = [u.call for u in scan("import torch_xla as t\nt.sync(wait=True)").uses if u.call]
    assert call.keywords[0].arg == "wait"


def test_modules_by_name() -> None:
    assert uses("import importlib\nimportlib.import_module('torch_xla.runtime')") == [
        (2, "torch_xla.runtime")
    ]


def test_stars_are_guesses() -> None:
    found = scan(f"from {XM} import *\nxla_device()\nprint(len(x))").uses
    assert [(use.name, use.is_guess) for use in found] == [
        (XM, False),
        (f"{XM}.xla_device", True),
        (f"{XM}.x", True),
    ]
