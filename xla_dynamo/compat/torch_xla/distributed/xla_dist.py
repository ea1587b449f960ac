"""torch_xla.distributed.xla_dist: the launcher of TPU pods of 2019 to 2.0."""

from __future__ import annotations

from typing import Any

from xla_dynamo.errors import NotAvailable


def main(*args: Any, **kwargs: Any) -> None:
    """Launch on a pod.

    Raises:
        NotAvailable: always.
    """
    raise NotAvailable(
        "xla_dist starts a script on every host of a TPU pod; here it runs on one: start it there"
    )


def get_args_parser() -> Any:
    """The command line of the launcher, as `accelerate launch` extends it."""
    import argparse

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tpu", type=str)
    parser.add_argument("--vm", action="append", type=str)
    parser.add_argument("--docker-container", default="", type=str)
    parser.add_argument("--docker-image", default="", type=str)
    parser.add_argument("--docker-run-flag", action="append", type=str)
    parser.add_argument("--conda-env", default="", type=str)
    parser.add_argument("--env", action="append", type=str)
    parser.add_argument("--restart-tpuvm-pod", action="store_true")
    parser.add_argument("--restart-tpuvm-pod-server", action="store_true")
    parser.add_argument("--tpuvm-server-port", default=51011, type=int)
    parser.add_argument("positional", nargs="+", type=str)
    return parser


resolve_and_execute = main


class DistributedExecutor:
    """Launches on a pod; making one raises NotAvailable."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        main()


if __name__ == "__main__":
    main()
