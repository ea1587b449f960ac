"""Every name of every generation of torch_xla resolves, and the page that counts them is right."""

from __future__ import annotations

import importlib
import itertools
import sys

import pytest

from tests.compat import names

BY_MODULE = {
    module: list(group)
    for module, group in itertools.groupby(
        sorted(names.read(), key=lambda name: name.module), lambda name: name.module
    )
}


@pytest.mark.parametrize("module", BY_MODULE)
def test_names_of_module_resolve(module):
    found = importlib.import_module(module)
    missing = [name.name for name in BY_MODULE[module] if not hasattr(found, name.name)]
    assert missing == []


def test_no_name_is_listed_twice():
    listed = [(name.module, name.name) for name in names.read()]
    assert sorted(listed) == sorted(set(listed))


def test_page_counts_the_names():
    """`python tests/compat/names.py` writes the table."""
    text = names.PAGE.read_text()
    assert text.split(names.BEGIN)[1].split(names.END)[0].strip() == names.table()


def test_submodules_are_attributes():
    import torch_xla

    assert torch_xla.core.xla_model.xla_device().type == "xla"
    assert torch_xla.distributed.xla_multiprocessing.spawn is not None
    assert torch_xla.xm is torch_xla.core.xla_model
    assert torch_xla.xr.world_size() == 1
    assert torch_xla.xmp is torch_xla.distributed.xla_multiprocessing
    assert torch_xla.xu.as_list(1) == [1]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = torch_xla.nothing


def test_modules_exist_once():
    """State and classes are the same by every name of a module."""
    for module in BY_MODULE:
        importlib.import_module(module)
    assert [name for name in sys.modules if name.startswith("xla_dynamo.compat.torch_xla")] == []
    from torch_xla.distributed.spmd import xla_sharding
    from torch_xla.experimental import xla_sharding as earlier

    assert earlier is xla_sharding
    assert xla_sharding.__spec__.name == "torch_xla.distributed.spmd.xla_sharding"


def test_xlac_is_one_module():
    import _XLAC
    import torch_xla

    assert _XLAC is torch_xla._XLAC
    with pytest.raises(AttributeError, match=r"_xla_frobnicate.*look in the public modules"):
        _ = _XLAC._xla_frobnicate


def test_environment_variable_constants_are_names():
    import torch_xla.core.xla_env_vars as xenv

    assert (xenv.PJRT_DEVICE, xenv.MP_DEVICE) == ("PJRT_DEVICE", "XRT_MULTI_PROCESSING_DEVICE")
