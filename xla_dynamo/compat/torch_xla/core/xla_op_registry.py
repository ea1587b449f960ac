"""torch_xla.core.xla_op_registry: ops written with XLA's builder, which is not here."""

from __future__ import annotations

from typing import Any

from xla_dynamo.errors import NotAvailable


def register(name: str, opfn: Any) -> Any:
    """Register an op.

    Raises:
        NotAvailable: always, with what to write instead.
    """
    raise NotAvailable(
        f"xla_op_registry.register({name!r}): write the op with torch.library.custom_op and lower "
        "it with @xla_dynamo.backend.lowering.registry.lower (see CONTRIBUTING.md, Adding an op)"
    )
