"""Consolidate the checkpoints of a model's replicas, each with its parts of the parameters."""

from __future__ import annotations

import glob
import math
from collections.abc import Sequence
from typing import Any

import torch


def consolidate_sharded_state_dicts(
    state_dict_list: Sequence[dict[str, Any]], shard_metadata: Any
) -> dict[str, Any]:
    """The state_dict of the whole model, of those of all replicas in the order of their ranks.

    Raises:
        ValueError: there are more or fewer than replicas.
    """
    count = shard_metadata["world_size"]
    if len(state_dict_list) != count:
        raise ValueError(f"{len(state_dict_list)} state_dicts are not those of {count} replicas")
    whole: dict[str, Any] = {}
    for name, value in state_dict_list[0].items():
        info = shard_metadata["shard_info"].get(name)
        if info is None:
            whole[name] = value
            continue
        shape = info["_orig_size"]
        flat = torch.cat([state[name] for state in state_dict_list])
        whole[name] = flat[: math.prod(shape)].view(shape)
    return whole


def consolidate_sharded_model_checkpoints(
    ckpt_prefix: str, ckpt_suffix: str = "*.pth", save_path: str = "", save_model: bool = True
) -> tuple[dict[str, Any], str]:
    """The state_dict in the files `prefix + suffix`, and where it was saved.

    Each file holds {"model": state_dict, "shard_metadata": ...}, of one replica.

    Raises:
        AssertionError: no file matches.
        ValueError: there are more or fewer than replicas.
    """
    paths = sorted(glob.glob(ckpt_prefix + ckpt_suffix))
    assert paths, f"Cannot find any files matching {ckpt_prefix + ckpt_suffix}."
    saved = [torch.load(path, map_location="cpu", weights_only=False) for path in paths]
    saved.sort(key=lambda checkpoint: checkpoint["shard_metadata"]["rank"])
    whole = consolidate_sharded_state_dicts(
        [checkpoint["model"] for checkpoint in saved], saved[0]["shard_metadata"]
    )
    target = save_path or f"{ckpt_prefix}_consolidated.pth"
    if save_model:
        torch.save({"model": whole}, target)
    return whole, target
