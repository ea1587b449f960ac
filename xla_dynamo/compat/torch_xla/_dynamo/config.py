"""torch_xla._dynamo.config: switches of its bridge, without effect here."""

from __future__ import annotations

skip_input_data_check = False
outside_on_amp = False
