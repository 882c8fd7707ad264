import pytest
import torch

from lit_gans.common.device import chosen_device
from lit_gans.common.errors import RefusedInput


def test_a_device_that_exists_is_chosen_and_others_are_refused():
    assert chosen_device("cpu") == torch.device("cpu")
    assert chosen_device(None).type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("gpu", "cuda:77"):
        with pytest.raises(RefusedInput, match=f"device={name} cannot be used: "):
            chosen_device(name)
