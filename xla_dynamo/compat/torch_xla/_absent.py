"""Functions of torch_xla that are not here: each says what to write instead.

The modules core.xla_op_registry, tf_saved_model_integration and experimental.stablehlo_custom_call
are this one.
"""

from __future__ import annotations

from typing import Any, NoReturn

from xla_dynamo.errors import NotAvailable

from .experimental._hints import place_to_device as place_to_device
from .experimental._hints import place_to_host as place_to_host


class Absent:
    """A function that raises NotAvailable; `python -m xla_dynamo check` reads why and remedy."""

    def __init__(self, why: str, remedy: str) -> None:
        self.why = why
        self.remedy = remedy

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotAvailable(f"{self.why}: {self.remedy}")


register = Absent(
    "xla_op_registry.register",
    "write the op with torch.library.custom_op and lower it with "
    "@xla_dynamo.backend.lowering.registry.lower (see CONTRIBUTING.md, Adding an op)",
)
stablehlo_custom_call = Absent(
    "stablehlo_custom_call",
    "write a torch.library.custom_op and lower it with "
    "@xla_dynamo.backend.lowering.registry.lower, whose body may be any JAX function",
)
save_torch_module_as_tf_saved_model = Absent(
    "SavedModels are TensorFlow's",
    "save StableHLO by torch_xla.stablehlo.save_as_stablehlo, which tf.raw_ops.XlaCallModule runs",
)
save_stablehlo_graph_as_tf = make_tf_function = save_torch_module_as_tf_saved_model
