"""torch_xla.tf_saved_model_integration: StableHLO as TensorFlow SavedModels, which it needs."""

from __future__ import annotations

from typing import Any

from xla_dynamo.errors import NotAvailable


def save_torch_module_as_tf_saved_model(*args: Any, **kwargs: Any) -> None:
    """Write a SavedModel.

    Raises:
        NotAvailable: always, with what there is instead.
    """
    raise NotAvailable(
        "SavedModels are TensorFlow's: save StableHLO by torch_xla.stablehlo.save_as_stablehlo, "
        "which tf.raw_ops.XlaCallModule runs"
    )


save_stablehlo_graph_as_tf = make_tf_function = save_torch_module_as_tf_saved_model
