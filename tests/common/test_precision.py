import pytest
import torch

from lit_gans.common.precision import full_precision, tf32, without_autocast
from lit_gans.common.process_state import process_state_restored


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


def allowed():
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("flag", [False, True])
def test_tf32_is_set_inside_and_restored_even_after_an_error(flag):
    before = allowed()
    assert before == (False, True), "torch's default"
    with tf32(flag):
        assert allowed() == (flag, flag)
        with pytest.raises(KeyboardInterrupt), tf32(not flag):
            fail_after(allowed() == (not flag, not flag))
        assert allowed() == (flag, flag)
    assert allowed() == before


def fail_after(holds):
    assert holds
    raise KeyboardInterrupt


def test_what_a_script_chooses_for_one_operation_is_kept():
    """torch then raises an error if `allow_tf32` is read."""
    with process_state_restored():
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        with tf32(False):
            assert torch.backends.cuda.matmul.fp32_precision == "tf32"
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
