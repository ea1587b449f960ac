"""What benchmarks/tpu_hlo.py reads off the HLO of a TPU program."""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks import torch_models, tpu, tpu_hlo
from xla_dynamo.backend.runtime.topology import Analysis

# A table of 64 kB is copied to VMEM in two parts; of 8 rows that are gathered, a square is summed.
HLO = """HloModule step

%gathered (p0: f32[128,128], p1: s32[8]) -> f32[8,128] {
  %p0 = f32[128,128]{1,0:T(8,128)S(1)} parameter(0)
  %p1 = s32[8]{0:T(128)} parameter(1)
  ROOT %gather.1 = f32[8,128]{1,0:T(8,128)S(1)} gather(%p0, %p1), offset_dims={1}
}

%product (q0: f32[8,128]) -> (f32[8,8], bf16[8,8]) {
  %q0 = f32[8,128]{1,0:T(8,128)S(1)} parameter(0)
  %convolution.1 = f32[8,8]{1,0:T(8,128)} convolution(%q0, %q0), dim_labels=bf_oi->bf
  %narrow = bf16[8,8]{1,0:T(8,128)(2,1)} convert(%convolution.1)
  ROOT %both = (f32[8,8]{1,0:T(8,128)}, bf16[8,8]{1,0:T(8,128)(2,1)}) tuple(%convolution.1, %narrow)
}

ENTRY %main (table: f32[128,128], rows: s32[8]) -> f32[8,8] {
  %table = f32[128,128]{1,0:T(8,128)} parameter(0)
  %rows = s32[8]{0:T(128)} parameter(1)
  %slice-start = ((f32[128,128]{1,0:T(8,128)}), f32[64,128]{1,0:T(8,128)S(1)}, s32[]{:S(2)}) slice-start(%table), slice={[0:64], [0:128]}
  %slice-start.1 = ((f32[128,128]{1,0:T(8,128)}), f32[64,128]{1,0:T(8,128)S(1)}, s32[]{:S(2)}) slice-start(%table), slice={[64:128], [0:128]}
  %slice-done = f32[64,128]{1,0:T(8,128)S(1)} slice-done(%slice-start)
  %slice-done.1 = f32[64,128]{1,0:T(8,128)S(1)} slice-done(%slice-start.1)
  %custom-call = f32[128,128]{1,0:T(8,128)S(1)} custom-call(%slice-done, %slice-done.1), custom_call_target="ConcatBitcast"
  %gather = f32[8,128]{1,0:T(8,128)S(1)} fusion(%custom-call, %rows), kind=kCustom, calls=%gathered, backend_config={"estimated_cycles":"30"}
  %squares = (f32[8,8]{1,0:T(8,128)}, bf16[8,8]{1,0:T(8,128)(2,1)}) fusion(%gather), kind=kOutput, calls=%product, backend_config={"estimated_cycles":"70"}
  %get-tuple-element = bf16[8,8]{1,0:T(8,128)(2,1)} get-tuple-element(%squares), index=1
  ROOT %sum = f32[8,8]{1,0:T(8,128)} fusion(%get-tuple-element), kind=kLoop, calls=%wide, backend_config={"estimated_cycles":"5"}
}
"""  # noqa: E501
WHOLE, ROWS, TILE, INDICES = 2**16, 2**12, 2**12, 32


def test_bytes_by_memory_with_whole_tiles() -> None:
    program = tpu_hlo.read(HLO)
    assert program.copied == WHOLE  # read from HBM, once
    gathered, squares, last = 2 * ROWS + INDICES, ROWS + TILE + TILE // 2, TILE // 2 + TILE
    assert program.computed == gathered + squares + last
    assert program.hbm == WHOLE + INDICES + TILE + TILE // 2 + last


def test_what_is_alive_at_once() -> None:
    """The rows and their products; neither what is copied nor what is returned."""
    program = tpu_hlo.read(HLO)
    assert program.alive == ROWS + TILE + TILE // 2
    assert program.largest == ("f32[8,128]", "f32[8,8]", "bf16[8,8]")


def test_cycles_of_products() -> None:
    program = tpu_hlo.read(HLO)
    assert (program.product_cycles, program.other_cycles) == (70, 35)


def test_ratios_above_one_are_explained() -> None:
    program = tpu_hlo.read(HLO)
    theirs = Analysis(100, 100, 0, 0, 0, 100, 0, 100)
    sides: dict[str, Any] = {"our_program": program, "their_program": program}
    names = torch_models.mnist().name, "medium", "bfloat16", "v5e:2x2"
    equal = tpu.Comparison(*names, theirs, theirs, **sides, our_seconds=1, their_seconds=1)
    assert tpu.explained(equal) == []
    more = dataclasses.replace(theirs, bytes_accessed=107, temporary=120, cycles=101)
    assert tpu.explained(dataclasses.replace(equal, ours=more)) == [
        "mnist, bfloat16: bytes_accessed 1.070: computed 1.000, hbm 1.000, copied 1.000",
        "mnist, bfloat16: temporary 1.200: alive 1.000",
        "mnist, bfloat16: cycles 1.010: product_cycles 1.000, other_cycles 1.000",
        "mnist, bfloat16:   alive in xla_dynamo: f32[8,128], f32[8,8], bf16[8,8]",
        "mnist, bfloat16:   alive in JAX: f32[8,128], f32[8,8], bf16[8,8]",
    ]
