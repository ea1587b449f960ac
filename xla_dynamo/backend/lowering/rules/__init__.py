"""The JAX rules by family: pooling, indexing, linear algebra, ...

To find where an op is lowered, search this folder for its aten name. To add one, write a function
of JAX arrays in the file of its family and decorate it with `@lower(aten.name.overload)`.
Ops that hardly any model uses are in `rare/`. Importing this package imports every family, which
fills `registry.RULES`.
"""

from __future__ import annotations

import importlib
import pkgutil

import xla_dynamo.backend.ops  # noqa: F401  (some families lower its ops)

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
