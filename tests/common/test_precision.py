import pytest
import torch

from lit_gans.common.precision import full_precision, without_autocast


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_float32_and_its_gradient_half_again(dtype):
    half = torch.tensor([-1.5, 0.1, 2.0]).to(dtype).requires_grad_(True)
    full = full_precision(half)
    assert (full.dtype, full.tolist()) == (torch.float32, half.tolist())
    full.square().sum().backward()
    assert (half.grad.dtype, half.grad.tolist()) == (dtype, (2 * half).tolist())
    assert full_precision(full) is full


def test_autocast_is_off_inside_and_on_afterwards():
    matrix = torch.randn(2, 2, generator=torch.Generator().manual_seed(0))
    expected = matrix @ matrix
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with without_autocast(matrix):
            assert torch.equal(matrix @ matrix, expected)
        assert (matrix @ matrix).dtype == torch.bfloat16
        with without_autocast(matrix.to("meta")):  # which autocast does not know
            pass
    with without_autocast(matrix):
        assert torch.equal(matrix @ matrix, expected)
