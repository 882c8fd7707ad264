import pytest
import torch

from lit_gans.common.device import chosen_device
from lit_gans.common.errors import RefusedInput


def test_a_device_that_exists_is_chosen():
    assert chosen_device("cpu") == torch.device("cpu")
    assert chosen_device(None).type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "3", "meta", "cuda:77"])
def test_others_are_refused(name):
    with pytest.raises(RefusedInput, match=f"device={name} cannot be used: .*; give cpu, cuda, cuda:1 or mps"):
        chosen_device(name)
