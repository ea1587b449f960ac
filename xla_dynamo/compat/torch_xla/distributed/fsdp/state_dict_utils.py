"""Consolidate the checkpoints of a model's shards; here the one shard is the whole model."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from typing import Any

import torch

from xla_dynamo.errors import NotAvailable


def consolidate_sharded_state_dicts(
    state_dict_list: Sequence[dict[str, Any]], shard_metadata: Any
) -> dict[str, Any]:
    """The state_dict of the whole model.

    Raises:
        NotAvailable: there are several shards.
    """
    if len(state_dict_list) != 1:
        raise NotAvailable(
            f"{len(state_dict_list)} shards: checkpoints that several replicas wrote must be "
            "consolidated by the torch_xla that wrote them"
        )
    return dict(state_dict_list[0])


def consolidate_sharded_model_checkpoints(
    ckpt_prefix: str, ckpt_suffix: str = "*.pth", save_path: str = "", save_model: bool = True
) -> tuple[dict[str, Any], str]:
    """The state_dict in the files `prefix + suffix`, and where it was saved.

    Each file holds {"model": state_dict, "shard_metadata": ...}.

    Raises:
        AssertionError: no file matches.
        NotAvailable: several do.
    """
    paths = sorted(glob.glob(ckpt_prefix + ckpt_suffix))
    assert paths, f"Cannot find any files matching {ckpt_prefix + ckpt_suffix}."
    saved = [torch.load(path, map_location="cpu", weights_only=False) for path in paths]
    whole = consolidate_sharded_state_dicts(
        [checkpoint["model"] for checkpoint in saved], saved[0]["shard_metadata"]
    )
    target = save_path or f"{ckpt_prefix}_consolidated.pth"
    if save_model:
        torch.save({"model": whole}, target)
    return whole, target
