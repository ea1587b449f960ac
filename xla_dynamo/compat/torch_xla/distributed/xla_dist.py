"""torch_xla.distributed.xla_dist: the launcher of TPU pods of 2019 to 2.0, which is not here."""

from __future__ import annotations

from .._absent import Absent

main = Absent(
    "xla_dist, which starts a script on every host of a TPU pod, is not here",
    "start the script on the host where it is to run",
)
resolve_and_execute = DistributedExecutor = get_args_parser = main

if __name__ == "__main__":
    main()
