import pytest
import torch

from lit_gans.common import memory
from lit_gans.common.errors import RefusedInput
from lit_gans.common.memory import is_full, refuse_memory, refused_if_too_large


@pytest.fixture
def small(monkeypatch):
    """A machine with one MiB of memory."""
    monkeypatch.setattr(memory, "machine_memory", lambda: 2**20)


def test_tensors_that_together_are_too_large_are_refused(small):
    with refused_if_too_large("the networks"):
        made = [torch.empty(2**15), torch.zeros(2**15)]
    assert sum(tensor.nbytes for tensor in made) == 2**18
    with refused_if_too_large("the networks"), torch.device("meta"):
        torch.empty(2**40)
    with pytest.raises(RefusedInput, match="than the 0 GiB"), refused_if_too_large("the networks"):
        made += [torch.empty(2**15) for _ in range(9)]


@pytest.mark.parametrize("size", [(2**60,), (2**40, 2**40)])
def test_sizes_that_no_machine_has_are_refused(size):
    with pytest.raises(RefusedInput, match="the networks need more memory"), refused_if_too_large("the networks"):
        torch.empty(size)


def test_other_errors_pass():
    with pytest.raises(RuntimeError, match="another"), refused_if_too_large("the networks"):
        raise RuntimeError("another")
    assert is_full(MemoryError())
    assert is_full(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_full(RuntimeError("another"))


def test_a_number_of_bytes_is_refused(small):
    refuse_memory(2**20, "3 images", "generate fewer")
    with pytest.raises(RefusedInput, match="3 images need 1 GiB of memory, more than the 0 GiB of this machine"):
        refuse_memory(2**30, "3 images", "generate fewer")
