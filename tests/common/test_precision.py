from contextlib import nullcontext

import pytest
import torch

from lit_gans.common.precision import full_precision, without_autocast


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_float32_with_the_same_numbers(dtype):
    half = torch.tensor([-1.5, 0.1, 60000.0]).to(dtype)
    full = full_precision(half)
    assert full.dtype == torch.float32
    assert full.tolist() == half.tolist()
    for dtype in (torch.float32, torch.float64):
        tensor = half.to(dtype)
        assert full_precision(tensor) is tensor


def test_the_gradient_comes_back_in_the_precision_of_the_tensor():
    half = torch.tensor([2.0, 3.0], dtype=torch.bfloat16, requires_grad=True)
    full_precision(half).square().sum().backward()
    assert half.grad.dtype == torch.bfloat16
    assert half.grad.tolist() == [4, 6]


def test_autocast_stops_inside_and_goes_on_after():
    matrix = torch.randn(2, 2, generator=torch.Generator().manual_seed(0))
    expected = matrix @ matrix
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with without_autocast(matrix):
            assert torch.equal(matrix @ matrix, expected)
        assert (matrix @ matrix).dtype == torch.bfloat16
        with pytest.raises(KeyError), without_autocast(matrix):
            raise KeyError
        assert torch.is_autocast_enabled("cpu")
    with without_autocast(matrix):
        assert torch.equal(matrix @ matrix, expected)
    assert not torch.is_autocast_enabled("cpu")


def test_where_there_is_no_autocast_there_is_nothing_to_leave():
    assert isinstance(without_autocast(torch.empty(1)), nullcontext)
    tensor = torch.empty(2, 2, device="meta")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert isinstance(without_autocast(torch.empty(1)), torch.autocast)
        assert isinstance(without_autocast(tensor), nullcontext)
