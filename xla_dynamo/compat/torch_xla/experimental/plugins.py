"""PJRT plug-ins: they announce themselves to JAX (entry point group `jax_plugins`)."""

from __future__ import annotations

from typing import Any

from .._absent import Absent


class DevicePlugin:
    """What describes a plug-in."""

    def library_path(self) -> str:
        """The file of the plug-in."""
        raise NotImplementedError

    def host_index(self) -> int:
        """The number of this host."""
        return 0

    def configure_single_process(self) -> None:
        """Prepare the environment."""

    def configure_multiprocess(self, local_rank: int, local_world_size: int) -> None:
        """Prepare the environment of one of several processes."""

    def physical_chip_count(self) -> int:
        """Chips on this host."""
        return 1

    def client_create_options(self) -> dict[str, Any]:
        """Options for making the client."""
        return {}

    def requires_xla_coordinator(self) -> bool:
        """Whether processes must find each other."""
        return False


def use_dynamic_plugins() -> None:
    """Nothing: JAX finds and registers plug-ins by itself."""


register_installed_plugins = use_dynamic_plugins


def using_dynamic_plugins() -> bool:
    """True: plug-ins are found by themselves."""
    return True


register_plugin = Absent(
    "register_plugin",
    "install the plug-in's JAX package, which announces itself (entry point group jax_plugins), "
    "and set PJRT_DEVICE to its name",
)
