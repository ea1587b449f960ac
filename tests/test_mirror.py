"""Each module of the backend has its test file at the same place, or a row here that names it."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
PACKAGE = ROOT / "xla_dynamo" / "backend"

# module: the file that tests it, in tests/. Rules are tested by family; what only fits together
# with the rest (launches, the costs of a TPU) is tested where it does.
ELSEWHERE = {
    "lowering/nodes.py": "backend/lowering/test_bodies.py",
    "lowering/rule_functions.py": "backend/lowering/test_bodies.py",
    "capture/aot_entry.py": "backend/capture/test_aot_cache.py",
    "capture/step_graph.py": "backend/test_training_step.py",
    "decompositions/dynamic_shapes.py": "backend/passes/aten/test_pad_dynamic_shapes.py",
    "decompositions/flex_attention.py": "backend/passes/dynamo/test_flex_attention.py",
    "decompositions/foreach.py": "compat/kernels/test_foreach.py",
    "decompositions/matmul_backward.py": "backend/lowering/rules/test_matmul.py",
    "decompositions/selected.py": "compat/values/test_selected.py",
    "executable/by_shape.py": "test_shapes.py",
    "executable/compile.py": "test_inspection.py",
    "executable/array_parts.py": "compat/execution/test_array_parts.py",
    "executable/device_launch.py": "compat/device/test_torch_compile.py",
    "executable/host_launch.py": "compat/execution/test_known_turns.py",
    "executable/known_turns.py": "compat/execution/test_known_turns.py",
    "executable/launch.py": "test_inspection.py",
    "executable/request.py": "test_inspection.py",
    "executable/size_changes.py": "test_shapes.py",
    "executable/static_program.py": "test_fallback.py",
    "graph/torch_private.py": "test_architecture.py",
    "ops/optimizer_updates.py": "backend/capture/test_parameter_updates.py",
    "passes/joint/expand_updates.py": "backend/capture/test_parameter_updates.py",
    "lowering/channels.py": "backend/lowering/test_manual.py",
    "lowering/dtypes.py": "backend/runtime/test_transfers.py",
    "lowering/rules/_dims.py": "backend/lowering/rules/test_reductions.py",
    "lowering/rules/_exponentials.py": "backend/lowering/rules/test_pointwise.py",
    "lowering/rules/_interpolation.py": "backend/lowering/rules/test_upsampling.py",
    "lowering/rules/_selection.py": "backend/lowering/rules/cpu/test_selection.py",
    "lowering/rules/_windows.py": "backend/lowering/rules/test_average_pooling.py",
    "lowering/rules/arg_reductions.py": "backend/lowering/rules/test_reductions.py",
    "lowering/rules/as_strided.py": "backend/lowering/rules/test_views.py",
    "lowering/rules/capped_attention.py": "backend/lowering/rules/tpu/test_attention.py",
    "lowering/rules/comparison.py": "backend/lowering/rules/test_pointwise.py",
    "lowering/rules/complex_numbers.py": "backend/lowering/rules/test_pointwise.py",
    "lowering/rules/cpu/attention.py": "backend/lowering/rules/test_attention.py",
    "lowering/rules/cpu/batch_norm.py": "backend/lowering/rules/test_batch_norm.py",
    "lowering/rules/cpu/convolution.py": "backend/lowering/rules/test_convolution.py",
    "lowering/rules/cpu/indexing.py": "backend/lowering/rules/test_indexing.py",
    "lowering/rules/cpu/interpolation.py": "backend/lowering/rules/test_upsampling.py",
    "lowering/rules/cpu/prims.py": "backend/lowering/rules/test_prims.py",
    "lowering/rules/cpu/scans.py": "backend/numerics/test_running_sums.py",
    "lowering/rules/cpu/windows.py": "backend/lowering/rules/cpu/test_plain_rules.py",
    "lowering/rules/dynamic_shapes.py": "backend/passes/aten/test_pad_dynamic_shapes.py",
    "lowering/rules/dynamic_slice.py": "backend/passes/joint/test_dynamic_slice.py",
    "lowering/rules/embedding_bag.py": "backend/lowering/rules/test_embedding.py",
    "lowering/rules/interpolation.py": "backend/lowering/rules/test_upsampling.py",
    "lowering/rules/jax_calls.py": "backend/test_jax_functions.py",
    "lowering/rules/norms.py": "backend/lowering/rules/test_reductions.py",
    "lowering/rules/paged_attention.py": "backend/lowering/rules/tpu/test_paged_attention.py",
    "lowering/rules/pointwise_pairs.py": "backend/lowering/rules/test_pointwise.py",
    "lowering/rules/random_bits.py": "backend/lowering/rules/test_random.py",
    "lowering/rules/recurrent.py": "backend/lowering/rules/test_recurrent_rules.py",
    "lowering/rules/scans.py": "backend/lowering/rules/test_sorting.py",
    "lowering/rules/searching.py": "backend/lowering/rules/test_sorting.py",
    "lowering/rules/slicing.py": "backend/lowering/rules/test_views.py",
    "lowering/rules/tpu/_attention_kernels.py": "backend/lowering/rules/tpu/test_attention.py",
    "lowering/rules/tpu/_flash_attention.py": "backend/lowering/rules/tpu/test_attention.py",
    "lowering/rules/tpu_calls.py": "backend/lowering/rules/tpu/test_tpu_calls.py",
    "lowering/rules/stores.py": "backend/executable/test_in_place.py",
    "lowering/rules/weight_norm.py": "backend/lowering/rules/test_distances.py",
    "lowering/unsupported.py": "test_fallback.py",
    "ops/attention.py": "backend/passes/joint/test_attention_backward.py",
    "ops/capped_attention.py": "backend/lowering/rules/tpu/test_attention.py",
    "ops/barriers.py": "backend/passes/numerics/test_no_reassociation.py",
    "ops/fused.py": "backend/passes/joint/test_dynamic_slice.py",
    "ops/packed.py": "backend/lowering/rules/test_packed.py",
    "ops/jax_calls.py": "backend/test_jax_functions.py",
    "ops/paged_attention.py": "backend/lowering/rules/tpu/test_paged_attention.py",
    "ops/padded.py": "backend/passes/aten/test_pad_dynamic_shapes.py",
    "ops/recurrent.py": "backend/lowering/rules/test_recurrent_rules.py",
    "ops/sharding.py": "backend/lowering/rules/test_sharding.py",
    "ops/stores.py": "backend/executable/test_in_place.py",
    "ops/tpu_calls.py": "backend/lowering/rules/tpu/test_tpu_calls.py",
    "ops/registration.py": "backend/passes/aten/test_pad_dynamic_shapes.py",
    "passes/contract.py": "backend/test_pipeline.py",
    "passes/dynamo/exchange_calls.py": "backend/decompositions/test_margin_losses.py",
    "passes/joint/functionalize_rng.py": "test_random.py",
    "passes/joint/save_for_backward.py": "test_mutation.py",
    "passes/padding/padder.py": "backend/passes/padding/test_walk.py",
    "passes/padding/plan.py": "backend/passes/padding/test_walk.py",
    "passes/padding/registry.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/along.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/attention.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/batch_norm.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/batched.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/convolution.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/creation.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/cumulative.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/dynamic_slices.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/embedding.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/embedding_bag.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/indexing.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/joining.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/linalg.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/losses.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/normalization.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/pointwise.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/pooling.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/products.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/random.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/recurrent.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/reductions.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/scatter.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/slices.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/softmax.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/sorting.py": "backend/passes/padding/test_walk.py",
    "passes/padding/rules/views.py": "backend/passes/padding/test_walk.py",
    "passes/static/eager_layout.py": "backend/decompositions/test_eager_layout.py",
    "passes/verify.py": "backend/test_pipeline.py",
    "runtime/call_path.py": "backend/runtime/test_pjrt.py",
    "runtime/replica_arrays.py": "backend/lowering/rules/test_collectives.py",
    "runtime/resident.py": "compat/device/test_torch_compile.py",
    "runtime/topology.py": "test_tpu.py",
}
MODULES = [
    str(path.relative_to(PACKAGE))
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.name != "__init__.py"
]
pytestmark = pytest.mark.spine


def own_test(module: str) -> Path:
    path = Path(module)
    return TESTS / "backend" / path.parent / f"test_{path.stem.lstrip('_')}.py"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_its_test_file(module: str) -> None:
    if module in ELSEWHERE:
        assert (TESTS / ELSEWHERE[module]).exists()
        assert not own_test(module).exists(), f"drop the row of {module}"
    else:
        assert own_test(module).exists(), f"{own_test(module).relative_to(ROOT)} is missing"


def test_rows_are_of_modules_that_exist() -> None:
    assert not ELSEWHERE.keys() - set(MODULES)


def test_test_files_of_single_modules_are_at_the_places_of_modules() -> None:
    """Only files that look at several modules lie beside them without one of their name."""
    shared = {"backend/passes", "backend/graph", "backend/runtime", "backend/capture"}
    for folder in shared:
        for path in sorted((TESTS / folder).rglob("test_*.py")):
            module = path.relative_to(TESTS / "backend").with_name(path.name.removeprefix("test_"))
            assert (PACKAGE / module).exists(), path.relative_to(ROOT)
