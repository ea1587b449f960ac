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
