"""Runs as plain data, for tests of what shows them."""

from __future__ import annotations

from dataclasses import replace

from xla_dynamo.reporting.model import Copies, Fallback, Memory, Op, Program, Run, Span, Use

# What a user's program may be called, or say: none of it may become markup, or run.
HOSTILE = (
    "<script>document.title='owned'</script>",
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "\"'><svg onload=document.title='owned'>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:document.title='owned'",
)
OPS = (
    Op("x", "argument", "float32[8, 4]", (), "", "", ""),
    Op("t", "argument", "float32[4, 4]", (), "", "", ""),
    Op("mm", "mm", "float32[8, 4]", (0, 1), "layer (Linear)", "train.py:7", "layer(x)"),
    Op("relu", "relu", "float32[8, 4]", (2,), "", "train.py:8", "y.relu()"),
)


def program(number: int, **changes: object) -> Program:
    """A program that was compiled again for other sizes, if it is not the first."""
    first = number == 0
    made = Program(
        name=f"0/{number} forward",
        location=f"train.py:{7 + number}",
        code="y = layer(x)",
        shapes=(f"float32[{8 + number}, 4]", "float32[4, 4]"),
        ops=2,
        at=0.5 + number,
        lowering=0.1,
        compiling=0.3 * (number + 1),
        from_disk=number == 2,
        cause="first" if first else "sizes",
        reason="first call" if first else f"x dimension 0 changed from 8 to {8 + number}",
        runs=10 * (number + 1),
        timed="completion",
        total_ms=50.0 - number,
        median_ms=4.0 + number,
        slowest_ms=9.0,
        memory=Memory(192, 128, 64, 0, 2048),
        graph=OPS,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def run(**changes: object) -> Run:
    """A run of three programs."""
    made = Run(
        title="train.py",
        command="train.py --steps 30",
        process="",
        began="2026-01-01 12:00:00+00:00",
        seconds=10.0,
        devices=("cpu/cpu/cpu/0.10.2",),
        versions=(("torch", "2.13.0"), ("jax", "0.10.2")),
        steps=60,
        step_is="barriers",
        step_ms=5.0,
        programs=tuple(program(number) for number in range(3)),
        more_programs=0,
        spans=(Span(1.0, 1.004, 0), Span(2.5, 2.51, 1)),
        every=1,
        uses=(Use(1.0, 1, 1000, 5000), Use(2.0, 30, 3000, 6000)),
        fallbacks=(Fallback("aten::nonzero", "train.py:9", "Its shape.", "Use where.", 3),),
        copies=(Copies("uploads", 4, 4096, 0.001), Copies("reads", 2, None, None)),
        warnings=("0/0 forward was compiled 8 times. Choose buckets.",),
        notes=("A note.",),
        others=("run.rank1.html",),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def hostile() -> Run:
    """A run in which every text of the user's is an attempt to run a script."""
    programs = []
    for number, text in enumerate(HOSTILE):
        ops = (
            Op(text, text, text, (), text, text, text),
            Op(text, text, text, (0,), text, text, text),
        )
        names = {"name": text, "location": text, "code": text, "reason": text, "shapes": (text,)}
        programs.append(program(number, graph=ops, **names))
    text = "".join(HOSTILE)
    return run(
        title=text,
        command=text,
        programs=tuple(programs),
        fallbacks=(Fallback(text, text, text, text, 1),),
        warnings=HOSTILE,
        others=HOSTILE,
    )
