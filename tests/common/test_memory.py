import pytest
import torch

from lit_gans.common import memory
from lit_gans.common.errors import RefusedInput
from lit_gans.common.memory import is_full, made_if_verified, refuse_memory, refused_if_too_large


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


def test_networks_are_verified_before_they_take_memory():
    seen = []

    def refuse(sketch):
        seen.append(sketch.weight.is_meta)
        raise RefusedInput("too large")

    with pytest.raises(RefusedInput, match="too large"):
        made_if_verified(lambda: torch.nn.Linear(2**20, 2**20), refuse)
    assert seen == [True]
    made = made_if_verified(lambda: torch.nn.Linear(2, 3), lambda sketch: seen.append(sketch.weight.shape))
    assert seen[1:] == [made.weight.shape]
    assert not made.weight.is_meta


def test_a_constructor_that_reads_numbers_is_called_as_it_is():
    def make():
        return torch.nn.Dropout(torch.linspace(0, 1, 3)[1].item())

    assert made_if_verified(make, lambda sketch: pytest.fail("nothing was made")).p == 0.5


def test_a_number_of_bytes_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "machine_memory", lambda: 2**20)
    refuse_memory(2**20, "3 images", "generate fewer")
    with pytest.raises(RefusedInput, match="3 images need 1 GiB of memory, more than the 0 GiB of this machine"):
        refuse_memory(2**30, "3 images", "generate fewer")
