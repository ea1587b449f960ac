"""What every version of jax and jaxlib gives, by its own means or by ours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from xla_dynamo.backend import jax_adapter

OLD = (0, 7, 2)


def test_wide_types_keep_their_width_within() -> None:
    with jax_adapter.apart():
        assert jnp.arange(2.0).dtype == np.float64
    assert jnp.arange(2.0).dtype == np.float32


def test_what_xla_logs_while_a_program_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    levels: list[int] = []
    monkeypatch.setattr(jax_adapter.utils, "absl_set_min_log_level", levels.append)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    for version in (OLD, (0, 9, 2), (0, 10, 2)):
        monkeypatch.setattr(jax_adapter, "VERSION", version)
        with jax_adapter.loading():
            pass
    assert levels == [3, 2]


@pytest.mark.parametrize("version", [OLD, jax_adapter.VERSION], ids=["old", "installed"])
class TestEachVersion:
    @pytest.fixture(autouse=True)
    def _as_version(self, version: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(jax_adapter, "VERSION", version)

    def test_a_computation_is_a_module_or_its_bytecode(self, version: tuple[int, ...]) -> None:
        module = jax.jit(lambda x: x).lower(1.0).compiler_ir("stablehlo")
        found = jax_adapter.computation(module)
        assert found.startswith(b"ML\xefR") if version == OLD else found is module

    def test_the_importer_of_dlpack_takes_five_arguments(self, version: tuple[int, ...]) -> None:
        given: list[int | None] = []
        importer = jax_adapter.dlpack_importer(lambda *arguments: given.extend(arguments))
        importer(1, 2, None, None, 5)
        assert given == ([1, 2, None] if version == OLD else [1, 2, None, None, 5])

    @pytest.mark.parametrize("left", [True, False])
    @pytest.mark.parametrize("transpose", [True, False])
    @pytest.mark.parametrize("columns", [3, 5])
    def test_ormqr(self, left: bool, transpose: bool, columns: int) -> None:
        a, taus = torch.geqrf(torch.randn(2, 4, columns, dtype=torch.complex64))
        c = torch.randn(2, 4, 4, dtype=torch.complex64)
        want = torch.ormqr(a, taus, c, left, transpose)
        arrays = (jnp.asarray(tensor.numpy()) for tensor in (a, taus, c))
        found = jax_adapter.ormqr(*arrays, left=left, transpose=transpose)
        np.testing.assert_allclose(found, want.numpy(), rtol=1e-4, atol=1e-5)

    def test_erfcx(self) -> None:
        x = torch.linspace(-3, 6, 40)
        found = jax_adapter.erfcx(jnp.asarray(x.numpy()))
        np.testing.assert_allclose(found, torch.special.erfcx(x).numpy(), rtol=5e-6)
