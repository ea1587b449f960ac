"""PJRT plug-ins: they announce themselves to JAX (entry point group `jax_plugins`)."""

from __future__ import annotations

from typing import Any

from xla_dynamo.errors import NotAvailable


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
    """Nothing: plug-ins are always found by themselves."""


def using_dynamic_plugins() -> bool:
    """True: plug-ins are found by themselves."""
    return True


def register_plugin(name: str, device_plugin: DevicePlugin) -> None:
    """Register a plug-in.

    Raises:
        NotAvailable: always, with how it is done here.
    """
    raise NotAvailable(
        f"register_plugin({name!r}): install the plug-in's JAX package, which announces itself "
        f"(entry point group jax_plugins), and set PJRT_DEVICE={name}"
    )


def register_installed_plugins() -> None:
    """Nothing: JAX registers them."""
