"""python -m xla_dynamo run | doctor | cache: torch_xla scripts, this environment, its cache."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import sys
from collections.abc import Sequence

from . import run
from .backend.runtime import cache
from .config import config
from .errors import DeviceUnavailable

_PACKAGES = ("xla_dynamo", "torch", "torch-mlir", "jax", "jaxlib", "numpy")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["run"]:  # argparse must not see the script's own arguments
        return run.main(given[1:])
    parser = argparse.ArgumentParser(prog="python -m xla_dynamo", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="a script that was written for torch_xla, with its arguments")
    commands.add_parser("doctor", help="versions, platform, devices and cache of this environment")
    stored = commands.add_parser("cache", help="the folder of compiled executables and its size")
    stored.add_argument("--clear", action="store_true", help="delete the executables")
    options = parser.parse_args(given)
    if options.command == "doctor":
        return _doctor()
    if options.clear:
        _clear()
    print(_describe_cache())
    return 0


def _doctor() -> int:
    print(f"{'python':<12} {platform.python_version()}")
    for name in _PACKAGES:
        print(f"{name:<12} {_version(name)}")
    print(f"{'plug-ins':<12} {', '.join(_plugins()) or 'none: XLA runs on the CPU'}")
    print(f"{'cache':<12} {_describe_cache()}")

    # Here, not above: it loads jax, and the lines above help where that fails.
    from .backend.runtime import pjrt

    chosen = pjrt.default_platform()
    print(f"{'platform':<12} {chosen}")
    try:
        device = pjrt.device(chosen)
    except DeviceUnavailable as error:
        print(f"{'devices':<12} none: {error}")
        return 1
    for found in device.client.local_devices():
        print(f"{'device':<12} {found.id}: {pjrt.describe(found)}")
    return 0


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _plugins() -> list[str]:
    """PJRT plug-ins: what announces itself to JAX, and libtpu, which JAX knows by name."""
    announced = importlib.metadata.entry_points(group="jax_plugins")
    names = {point.dist.name for point in announced if point.dist}
    if _version("libtpu") != "not installed":
        names.add("libtpu")
    return [f"{name} {_version(name)}" for name in sorted(names)]


def _describe_cache() -> str:
    folder = config().cache_dir
    if folder is None:
        return "off (XLA_DYNAMO_CACHE_DIR=0)"
    sizes = [entry.stat().st_size for entry in cache.entries(folder)]
    return f"{folder}: {len(sizes)} executables, {sum(sizes) / 2**20:.1f} MiB"


def _clear() -> None:
    folder = config().cache_dir
    if folder is not None:
        for entry in cache.entries(folder):
            entry.unlink(missing_ok=True)


if __name__ == "__main__":
    raise SystemExit(main())
