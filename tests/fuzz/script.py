"""A disagreement -> a Python file that shows it by itself: it exits with 1 while it lasts."""

from __future__ import annotations

import re
from pathlib import Path

from .program import PRELUDE
from .runner import Disagreement

_OPEN = {
    "compile": ("import xla_dynamo", 'torch.compile(program, backend="xla", dynamic=False)', "cpu"),
    "symbolic": ("import xla_dynamo", 'torch.compile(program, backend="xla", dynamic=True)', "cpu"),
    "bucket": (
        "import xla_dynamo\nfrom xla_dynamo.backend.executable import padded_layout\n\n"
        "padded_layout.poison = True",
        'torch.compile(program, backend="xla", dynamic=True, options={"bucket": lambda n: n + 3})',
        "cpu",
    ),
    "lazy": ("import xla_dynamo.compat", "program", "xla:0"),
}

_RUN = """

def run(function, device):
    given = inputs(device)
    results = function(*given)
    seen = [*results, *given]
    if GRADIENT:
        roots = list({{id(x): x for x in results if x.requires_grad}}.values())
        leaves = [x for x in given if x.requires_grad]
        weights = [
            torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view(x.shape).to(x.device)
            for x in roots
        ]
        seen += torch.autograd.grad(roots, leaves, weights, allow_unused=True)
    seen = [x if x is None else x.detach().cpu().clone() for x in seen]
    return seen + (reached(given, [*results, *given]) + reached(results, given) if ALL else [])


def reached(written, watched):
    before = [x.detach().clone() for x in watched]
    with torch.no_grad():
        for x in written:
            try:
                x.logical_not_() if x.dtype is torch.bool else x.fill_(123)
            except RuntimeError:
                pass  # an expanded tensor
    pairs = zip(watched, before)
    return [x.detach().ne(old) & ~(x.isnan() & old.isnan()) for x, old in pairs]


def attempt(function, device):
    try:
        return run(function, device)
    except Exception as error:
        return error


GRADIENT = {gradient}
ALL = {on_cpu}  # whether to see what later writes change
expected = attempt(program, "cpu")
actual = attempt({function}, "{device}")
print("eager:", expected)
print("{door}:", actual)
both_raise = isinstance(expected, Exception) and isinstance(actual, Exception)
if not both_raise:
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        raise SystemExit("one raises, the other does not")
    for ours, theirs in zip(actual, expected, strict=True):
        if theirs is None or ours is None:  # an input without influence
            ours, theirs = (torch.zeros(()) if x is None else x for x in (ours, theirs))
            assert not ours.any() and not theirs.any()
        else:
            torch.testing.assert_close(ours, theirs, {bounds}, equal_nan=True)
"""


def text(found: Disagreement) -> str:
    """The source of the script."""
    imports, function, device = _OPEN[found.door]
    bound = "1e-5" if found.program.single else "1e-9"
    return "\n".join(
        [
            f'"""{found.door}: {_plain(found.text)}"""\n',
            f"{PRELUDE}\n{imports}  # noqa: F401\n\n",
            found.program.text(),
        ]
    ) + _RUN.format(
        gradient=found.program.gradient,
        on_cpu=device == "cpu",
        function=function,
        device=device,
        door=found.door,
        bounds=f"rtol={bound}, atol={bound}",
    )


def write(found: Disagreement, folder: Path) -> Path:
    """The file, named after the door and the last step."""
    folder.mkdir(parents=True, exist_ok=True)
    step = (found.program.steps or ("nothing",))[-1]
    stem = re.sub(r"\W+", "_", f"{found.door} {step}")[:60].strip("_")
    path = folder / f"{stem}.py"
    number = 2
    while path.exists():
        path = folder / f"{stem}_{number}.py"
        number += 1
    path.write_text(text(found))
    return path


def _plain(message: str) -> str:
    return message[:400].replace("\\", "/").replace('"""', "'''")
