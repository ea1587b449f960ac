"""The cases of a test are run ahead before the first, so that their rules are few programs."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.like_eager import ahead, rules

_prepared: set[Any] = set()


@pytest.fixture(autouse=True)
def together(request: pytest.FixtureRequest) -> None:
    function: Any = request.function
    if function in _prepared:
        return
    _prepared.add(function)
    cases = [
        functools.partial(function, **item.callspec.params)
        for item in request.session.items
        if getattr(item, "function", None) is function and _takes_parameters_only(item)
    ]
    if len(cases) > 1:
        ahead.run(cases, rules.run_all)


def _takes_parameters_only(item: Any) -> bool:
    return hasattr(item, "callspec") and set(item._fixtureinfo.argnames) <= set(
        item.callspec.params
    )
