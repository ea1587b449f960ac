"""Graph passes, a folder for each stage; `backend/pipeline.py` lists them in order."""

from __future__ import annotations

import xla_dynamo.backend.ops  # noqa: F401  (registers what the passes put into graphs)
