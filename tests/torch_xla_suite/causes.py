"""Why tests of torch_xla do not pass here, as data: causes, and the words that tell them."""

from __future__ import annotations

import re

# A cause, and what it means: for the page.
CAUSES = {
    "TPU only": "how torch_xla finds the chips of a TPU host, and its Pallas kernels for TPUs",
    "ops of one thread": "replicas in threads have to record the same ops: docs/distributed.md",
    "many devices": "several replicas or devices, or a partitioner that splits between them",
    "one device": "wants what a CPU of one device gives, or as many devices as a TPU has chips",
    "partitioner": "Shardy splits what nothing marks otherwise than GSPMD, torch_xla's partitioner",
    "marks": "results of ops are not marked with shardings: with one device there is but one",
    "gradients of shards": "what mark_sharding gives has a gradient here: docs/legacy.md",
    "name of _XLAC": "a name of the C++ extension that no public script uses",
    "internal module": "a module of torch_xla that is none of its public ones, or a name in one",
    "XLA's builder": "ops of HLO built by hand; CONTRIBUTING.md has the way with JAX",
    "text of the IR": "asserts lines of torch_xla's IR, HLO or StableHLO that are other ones here",
    "text of a message": "an error or a warning comes, in other words",
    "internal counters": "counts how often torch_xla makes, moves or destroys tensors inside",
    "names of counters": "collectives are counted by PyTorch's names of ops, not by torch_xla's",
    "counts of programs": "other numbers of programs compiled or run, or of transfers",
    "eager's error": "eager PyTorch's error or value, where the test wants torch_xla's own",
    "at the barrier": "the error comes at the barrier, and names the line: docs/legacy.md",
    "accepted": "legal here, an error in torch_xla",
    "sparse": "a sparse tensor cannot be on an xla device: the error says so",
    "choice of a platform": "the test replaces what torch_xla asks, or wants no platform at all",
    "newer PyTorch": "PyTorch no longer has what the test imports or relies on",
    "pytest": "a function that is no test, taken for one by its name",
    "time": "takes longer than its limit, on two cores shared with others",
    "package that is not installed": "the test imports it",
    "dynamic sizes": "sizes that stay unknown in a StableHLO program",
    "after another": "a test before it in its file failed, and left its process group",
    "custom calls": "an op that only a plug-in of XLA has becomes a call in exported StableHLO",
}
# The first that `file::test: what it says` matches counts; others are written into the record.
_WORDS = {
    "one device": [
        *("test_spmd_debugging", "_runtime_device_count: AssertionError: 4 != 1"),
        "ddp_correctness_env_init",  # env:// is for processes
    ],
    "ops of one thread": ["ReplicaError: replicas recorded different programs"],
    "sparse": ["sparse_coo"],
    "time": ["takes longer than"],
    "package that is not installed": ["No module named '(?!torch_xla)", r"load custom C\+\+ ops"],
    "dynamic sizes": ["_xla_mark_dynamic", "unbounded_dynamism"],
    "names of counters": [r"assert \('?xla::", "assert 'xla::"],
    "TPU only": ["_internal_tpu", "_runtime_tpu", r"_tpu\.py", "TpuPlugin", "is a TPU kernel"],
    "pytest": [r"test_eager_with_torch_compile\.py:\d", r"aliases\.py:\d"],
    "name of _XLAC": [r"_XLAC\."],
    "internal module": [
        *("No module named 'torch_xla", "name .* 'torch_xla", "internal name of torch_xla"),
        *(
            "test_graph_input_matcher",
            "'_orig'",
            "GRU class should",
            "_CACHE",
            "should be in the cache",
        ),
        "activation_aliases",
        "UnsupportedNodesCollector",
        *(
            "_run_decompositions",
            "xla_marker",
            "NameError",
            "not found in \\{\\}",
            "mlir_debuginfo",
        ),
    ],
    "XLA's builder": ["xla_op_registry", r"xla_builder\."],
    # The last: Dynamo takes a size as dynamic that another test's call of the same layer changed.
    "newer PyTorch": [
        *("export_for_training", "test_clip_grad_norm_zero", "shape_mix_with_non_dynamic"),
    ],
    "partitioner": ["test_scan_2d_sharding"],
    "after another": ["test_xla_distributed_checkpoint.*group twice"],
    "gradients of shards": ["test_xla_distribute_tensor", "test_xla_placement"],
    "marks": [
        r"'\{replicated\}' != ''",
        "test_propagate_replicated",
        r"\{manual\}",
        *("manual_sharding", "shard_to_full_shape"),
    ],
    "eager's error": [
        *(
            "test_binaryop_order",
            "test_flip_check",
            "expected target dtype",
            "Expected dtype int32",
        ),
    ],
    "custom calls": ["test_stablehlo_custom_call"],
    "text of the IR": [
        *(
            "custom-call",
            r"sharding=\{",
            "XLAShardedData",
            "Tensor on host",
            "SPMD:0",
            r"parameter\(1\)",
        ),
        "ShardingSpec: None",
        *("prim::Constant", "xla::device_data", "XLAData: None", "_hlo", r"_ir\b", "opt-barrier"),
        *("test_inline_", "test_constant_wrapping", "save_load.py.*test_resnet18", r"save\.txt"),
        *("XLA_SAVE_TENSORS_FILE", "debug_annotations", "test_clear_pending_irs"),
        *("while\\(", "test_update_kv_cache", "test_scan_xla_patched_linear"),
    ],
    "internal counters": [
        *("DestroyXlaTensor", "RegisterXLAFunc", "nll_loss_backward", "TensorToData"),
        *("test_replace_xla", "test_multi_init", "DeviceDataCacheMiss", "LazyTracing"),
        *(
            "PjRtComputationClient",
            "BufferDonation",
            "test_aliasing_across",
            "Missing elements",
            "test_runtime_spmd_api",
            "VirtualDeviceUsage",
            "rematerialization",
        ),
    ],
    "counts of programs": [
        *("test_cached_addcdiv", "_fallback", "test_resnet18_stablehlo", "rendezvous_default"),
        *(
            "test_dynamo_input_sharding_changed",
            "test_eager_in_place",
            "test_eager_metrics",
            "TrainingBasicTest.test_resnet18",
        ),
    ],
    "many devices": [
        *("multi_cpu", "test_torchrun", "auto.sharding", "_multi_slice_", "hybrid_mesh"),
        *("state_dict_separation",),
    ],
    "choice of a platform": ["default_device_no_default", "device_type_error"],
    "at the barrier": ["test_reduction_0dim"],
    "accepted": [
        "non_empty_scope",
        "test_config_skip_input_data",
        "in_place_mutation",
        "test_xla_backend",
    ],
    "text of a message": ["test_all_cpu_tensor", "test_mixed_cpu_tensor"],
}


def cause_of(text: str) -> str:
    """The cause that `file::test: words of the error` tells; empty if none does."""
    found = (cause for cause, words in _WORDS.items() if re.search("|".join(words), text))
    return next(found, "")
