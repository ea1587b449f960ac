"""Let torchvision's wheel, which was built for CUDA, load beside a torch without it.

The wheel on PyPI has the CPU kernels of its ops (nms, roi_align, ...), but its library asks for
libtorch_cuda, libc10_cuda and libcudart, and does not load without them. `python -m
tests.ecosystem.without_cuda FOLDER` compiles libraries of these names whose functions do nothing;
with FOLDER in LD_LIBRARY_PATH the wheel loads, and without a CUDA device nothing calls them. It
needs gcc and binutils.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

_ALLOCATOR = "_ZN3c104cuda20CUDACachingAllocator9allocatorE"
# Kernels are registered at a handle, which must be a place in memory; an allocator is data.
_SPECIAL = {
    "__cudaRegisterFatBinary": "void *__cudaRegisterFatBinary(void *b) { return memory; }",
    _ALLOCATOR: f"char {_ALLOCATOR}[64];",
}


def main(folder: Path) -> None:
    """Compile the libraries into `folder`.

    Raises:
        SystemExit: torchvision is not installed.
    """
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        raise SystemExit("torchvision is not installed here: pip install --no-deps torchvision")
    library = Path(found.origin).with_name("_C.so")
    folder.mkdir(parents=True, exist_ok=True)
    for name in re.findall(r"NEEDED.*\[(lib\S*cuda\S*)\]", _output("readelf", "-d", library)):
        _build(folder, name, _undefined(library))


def _undefined(library: Path) -> dict[str, str]:
    """CUDA's symbols that the library leaves to others, and the version of each or ''."""
    lines = _output("nm", "-D", "--undefined-only", library).splitlines()
    symbols = (line.split()[-1].partition("@") for line in lines)
    return {name: version for name, _, version in symbols if "cuda" in name.lower()}


def _build(folder: Path, name: str, symbols: dict[str, str]) -> None:
    """A library `name` of the symbols that are asked of it: those of its version, or of none."""
    version = name if name in symbols.values() else ""
    own = [symbol for symbol, of in symbols.items() if of == version]
    functions = [_SPECIAL.get(symbol, f"void *{symbol}(void) {{ return 0; }}") for symbol in own]
    source, script = folder / "stub.c", folder / "stub.map"
    source.write_text("static void *memory[8];\n" + "\n".join(functions) + "\n")
    script.write_text(f"{version or 'ANY'} {{ global: *; }};\n")
    options = [f"-Wl,-soname,{name}", *([f"-Wl,--version-script={script}"] if version else [])]
    command = ["gcc", "-w", "-shared", "-fPIC", "-fno-builtin", str(source)]
    subprocess.check_call([*command, "-o", str(folder / name), *options])


def _output(*command: str | Path) -> str:
    return subprocess.check_output(list(map(str, command)), text=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
