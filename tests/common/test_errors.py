import re

import pytest
import torch

from lit_gans.common import errors
from lit_gans.common.errors import RefusedInput, import_extra, is_out_of_memory, nearest, refusing


def test_the_nearest_name_else_all_of_them_in_order_and_once():
    assert nearest("n_critc", ["seed", "n_critic", "n_critics_total"]) == "did you mean 'n_critic'?"
    assert nearest("xyz", ["b", "a", "b"]) == "valid names: a, b."
    assert nearest("xyz", []) == "nothing can be set there."


@pytest.mark.parametrize(
    ("entries", "command"),
    [
        (["pyproject.toml", ".git"], r'-e "{folder}\[wandb\]"'),
        (["pyproject.toml"], r'"lit-gans\[wandb\] @ git\+https://github.com/lit-gans/lit_gans"'),
        ([], r'"lit-gans\[wandb\] @ git\+https://github.com/lit-gans/lit_gans"'),
    ],
)
def test_a_missing_package_is_refused_with_the_command_that_installs_it(monkeypatch, tmp_path, entries, command):
    for name in entries:
        (tmp_path / name).touch()
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "lit_gans/common/errors.py"))
    assert import_extra("json", "wandb").dumps(3) == "3"
    command = command.replace("{folder}", re.escape(str(tmp_path.resolve())))
    with pytest.raises(RefusedInput, match=rf"package nothing is missing: .* python -m pip install {command}$"):
        import_extra("nothing.inside", "wandb")


def test_an_error_of_a_library_is_refused_by_its_first_line():
    with pytest.raises(RefusedInput, match=r"^data.root=x: first line\.$"), refusing("data.root=x"):
        raise ValueError("first line\nsecond line")
    with pytest.raises(RefusedInput, match=r"^data.root=x: ValueError\.$"), refusing("data.root=x"):
        raise ValueError
    for other in (RefusedInput("ours"), MemoryError()):
        with pytest.raises(type(other)) as raised, refusing("data.root=x"):
            raise other
        assert raised.value is other


def test_refused_input_is_no_value_error_which_jsonargparse_would_hide():
    assert not issubclass(RefusedInput, ValueError | TypeError)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("Allocation failed."),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        torch.multiprocessing.ProcessRaisedException("torch.OutOfMemoryError: Allocation failed.", 1, 7),
    ],
)
def test_exhausted_memory_is_recognized(error):
    assert is_out_of_memory(error)
    assert not is_out_of_memory(RuntimeError("shapes differ"))
