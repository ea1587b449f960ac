"""A model -> StableHLO in a folder -> its results: python -m xla_dynamo run examples/export.py

torch.export captures the model; the folder has the program, as bytecode and as text, and the
weights. Whatever runs StableHLO can run it; here it is read back and called.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch_xla.stablehlo import StableHLOGraphModule, exported_program_to_stablehlo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where to write; default: a temporary one")
    options = parser.parse_args()

    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = nn.Sequential(layer, nn.Linear(64, 10)).eval()
    x = torch.randn(2, 16, 64)
    program = exported_program_to_stablehlo(torch.export.export(model, (x,)))

    folder = options.folder or Path(tempfile.mkdtemp())
    program.save(folder)
    for path in sorted(path for path in folder.rglob("*") if path.is_file())[:6]:
        print(f"{path.relative_to(folder)}: {path.stat().st_size:,} bytes")
    signature = next(
        line for line in program.get_stablehlo_text().splitlines() if "func.func" in line
    )
    print(signature.strip()[:60], "...")

    again = StableHLOGraphModule.load(folder)
    difference = (again(x) - model(x)).abs().max()
    print(f"largest difference from eager: {difference:.1e}")


if __name__ == "__main__":
    main()
