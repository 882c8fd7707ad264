import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from lit_gans.common.device import chosen_device, on_cpu
from lit_gans.common.errors import RefusedInput


def test_a_device_that_exists_is_chosen_and_others_are_refused():
    assert chosen_device("cpu") == torch.device("cpu")
    assert chosen_device(None).type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("gpu", "cuda:77"):
        with pytest.raises(RefusedInput, match=f"device={name} cannot be used: "):
            chosen_device(name)


class Copies(TorchDispatchMode):
    """Counts copies from the GPU."""

    num = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        device = (kwargs or {}).get("device")
        self.num += func.overloadpacket is torch.ops.aten._to_copy and device == torch.device("cpu")
        return func(*args, **(kwargs or {}))


def test_scalars_of_a_gpu_reach_the_cpu_in_one_copy():
    with FakeTensorMode(), Copies() as copies:
        losses = {"a": torch.zeros((), device="cuda", dtype=torch.half), "b": torch.zeros(1, device="cuda").double()}
        moved = on_cpu(losses | {"c": torch.zeros(()), "d": 0.5})
    assert [*moved] == ["a", "b", "c", "d"]
    assert all(moved[name].is_cpu and moved[name].shape == () for name in "abc")
    assert moved["d"] == 0.5
    assert copies.num == 1


def test_scalars_on_the_cpu_are_not_copied():
    losses = {"a": torch.ones((), dtype=torch.half), "b": 2.0}
    assert on_cpu(losses) == losses
    assert on_cpu(losses)["a"] is losses["a"]


def test_scalars_of_different_dtypes_keep_their_values():
    values = [torch.tensor(value, dtype=dtype) for value, dtype in ((0.1, torch.half), (1 / 3, torch.double))]
    assert torch.stack(values).tolist() == [value.item() for value in values]
