"""How torch_xla's names come into a process, and that they do not come uninvited."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tests import programs

REPORT = """
import sys
import torch
import torch_xla.core.xla_model as xm
print(__name__, sys.argv[1:], xm.xla_device())
"""


def run(*arguments, cwd, **environment):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def write(tmp_path):
    def write(text, name="script.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write


def test_nothing_changes_uninvited(write, tmp_path):
    script = write("""
        import importlib.metadata, importlib.util, os, sys
        meta_path = list(sys.meta_path)
        import torch, xla_dynamo
        assert sys.meta_path == meta_path
        assert importlib.util.find_spec("torch_xla") is None
        assert not hasattr(torch, "xla") and "PJRT_DEVICE" not in os.environ
        assert not any(d.name == "torch_xla" for d in importlib.metadata.distributions())
        assert "xla_dynamo.compat" not in sys.modules
        import torch_xla
        """)
    environment = {"PJRT_DEVICE": ""}
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k not in environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'torch_xla'"


def test_environment_variable(write, tmp_path):
    done = run(write(REPORT), "a", cwd=tmp_path, XLA_DYNAMO_COMPAT="1")
    assert done.stdout == "__main__ ['a'] xla:0\n", done.stderr
    assert run(write(REPORT), cwd=tmp_path, XLA_DYNAMO_COMPAT="0").returncode == 1


def test_without_the_variable_pytorch_loads_nothing_of_ours(tmp_path):
    program = "import torch, sys; print([m for m in sys.modules if m.startswith('xla_dynamo')])"
    assert run("-c", program, cwd=tmp_path).stdout == "[]\n"


def test_import_and_metadata(write, tmp_path):
    script = write("""
        import importlib.metadata
        import xla_dynamo.compat
        import torch, torch_xla, torch_xla_py, _XLAC
        assert torch_xla.__version__ == importlib.metadata.version("torch-xla")
        assert importlib.metadata.version("torch_xla") == "2.9.0+xla.dynamo"
        assert importlib.metadata.packages_distributions()["torch_xla"] == ["torch_xla"]
        from transformers.utils import is_torch_xla_available
        assert is_torch_xla_available()
        """)
    done = run(script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_uninstall_takes_the_names_away(write, tmp_path):
    script = write("""
        import os, sys
        os.environ.pop("PJRT_DEVICE", None)
        import torch
        from torch.optim import optimizer
        before = (list(sys.meta_path), optimizer._get_foreach_kernels_supported_devices(),
                  torch.random._seed_custom_device, hasattr(torch, "xla"), dict(os.environ))
        from xla_dynamo import compat
        import torch_xla
        x = torch.ones(2, device="xla")
        assert os.environ["PJRT_DEVICE"] == "CPU"
        assert "xla" in optimizer._get_foreach_kernels_supported_devices()
        compat.uninstall()
        for name in ("CPU_NUM_DEVICES", "TF_CPP_MIN_LOG_LEVEL"):
            os.environ.pop(name, None)
        after = (list(sys.meta_path), optimizer._get_foreach_kernels_supported_devices(),
                 torch.random._seed_custom_device, hasattr(torch, "xla"))
        assert before[:-1] == after and "PJRT_DEVICE" not in os.environ
        assert "torch_xla" not in sys.modules
        assert (x + 1).tolist() == [2, 2]
        compat.install()
        import torch_xla
        assert torch_xla.device_count() == 1
        """)
    done = run(script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_ours_wins_over_an_installed_one_and_says_so_once(write, tmp_path):
    write("raise ImportError('undefined symbol')", "torch_xla/__init__.py")
    script = write(REPORT + "import torch_xla.runtime\n")
    done = run("-m", "xla_dynamo", "run", script, cwd=tmp_path)
    assert done.stdout == "__main__ [] xla:0\n", done.stderr
    assert done.stderr.count("xla_dynamo takes its place") == 1


def test_one_that_is_imported_already_is_an_error(write, tmp_path):
    write("", "torch_xla/__init__.py")
    done = run(write("import torch_xla\nimport xla_dynamo.compat"), cwd=tmp_path)
    assert "ImportError: torch_xla is imported already, from" in done.stderr
    assert "import xla_dynamo.compat before torch_xla" in done.stderr


SCRIPTS = {
    "arguments": "import sys; print(__name__, sys.argv, sys.path[0], __package__, __spec__)",
    "main": "import sys; print(sys.modules['__main__'].__dict__ is globals(), __file__)",
    "exception": """
        def f():
            try:
                1 / 0
            except ZeroDivisionError:
                raise ValueError("wrong")
        f()
        """,
    "exit code": "import sys; sys.exit(3)",
    "exit text": "import sys; sys.exit('bye')",
    "syntax": "a = (",
    "hook": """
        import sys
        def hook(kind, error, trace):
            print("hook", kind.__name__, trace.tb_frame.f_code.co_name)
        sys.excepthook = hook
        raise ValueError
        """,
    "at exit": """
        import atexit
        value = "kept"
        atexit.register(lambda: print(value))
        """,
}


def assert_run_is_what_python_does(arguments, folder):
    """Ours in a fork of a process that has imported torch: see tests.programs."""
    plain = programs.outcome(*arguments, fresh=True, cwd=folder)
    assert programs.outcome("-m", "xla_dynamo", "run", *arguments, cwd=folder) == plain


@pytest.mark.parametrize("kind", SCRIPTS)
def test_run_is_what_python_does(kind, write, tmp_path):
    script = write(SCRIPTS[kind])
    assert_run_is_what_python_does(("script.py", "a", "--b"), tmp_path)
    assert script.exists()


@pytest.mark.parametrize("text", [SCRIPTS["exception"], "raise KeyboardInterrupt"])
def test_run_is_what_python_does_in_a_process_of_its_own(text, write, tmp_path):
    write(text)
    plain = run("script.py", "a", "--b", cwd=tmp_path)
    ours = run("-m", "xla_dynamo", "run", "script.py", "a", "--b", cwd=tmp_path)
    assert (ours.returncode, ours.stdout, ours.stderr) == (
        plain.returncode,
        plain.stdout,
        plain.stderr,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        *(("-m", "pack", "x"), ("-m", "pack.part"), ("-m", "none"), ("-m", "none.at")),
        *(("-m", "bare"), ("bare",), ("none.py",)),
    ],
    ids=" ".join,
)
def test_run_takes_modules_and_says_what_is_missing(arguments, write, tmp_path):
    text = "import sys; print(__name__, __package__, sys.argv, __spec__.name)"
    write("", "pack/__init__.py")
    write("", "bare/__init__.py")  # without a __main__
    write(text, "pack/__main__.py")
    write(text, "pack/part.py")
    assert_run_is_what_python_does(arguments, tmp_path)


def test_run_reaches_processes_that_the_script_starts(write, tmp_path):
    write(REPORT, "child.py")
    script = write("""
        import subprocess, sys
        print(subprocess.run([sys.executable, "child.py"], capture_output=True, text=True).stdout)
        """)
    done = run("-m", "xla_dynamo", "run", script, cwd=tmp_path)
    assert done.stdout.strip() == "__main__ [] xla:0", done.stderr


def test_run_without_a_script_says_how(tmp_path):
    done = run("-m", "xla_dynamo", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python -m xla_dynamo run ")


def test_closures_that_no_barrier_came_for_run_at_exit(write, tmp_path):
    text = REPORT + "xm.add_step_closure(print, args=('left over',))\n"
    done = run("-m", "xla_dynamo", "run", write(text), cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "left over", done.stderr
    done = run("-m", "xla_dynamo", "run", write(text + "1 / 0"), cwd=tmp_path)
    assert "left over" not in done.stdout
