"""The operations of ADA against loops over single images, and their first and second derivatives."""

import math

import pytest
import torch

from lit_gans.training.ada_operations import NUM_NUMBERS, _color, _cutout, _geometry, _sample, transformed

DRAWN = torch.Generator().manual_seed(0)
IMAGES = torch.rand(40, 3, 16, 16, generator=DRAWN) * 2 - 1
NUMBERS = torch.rand(40, NUM_NUMBERS, generator=DRAWN)


def test_uses_every_number_and_changes_nothing_at_probability_0():
    torch.testing.assert_close(transformed(IMAGES, NUMBERS, 0.0), IMAGES, rtol=0, atol=1e-5)
    columns = iter(NUMBERS.unbind(1))
    _cutout(_color(_sample(IMAGES, _geometry(columns, 0.5, 16, 16)), columns, 0.5), columns, 0.5)
    assert next(columns, None) is None


def test_r3gan_s_pipeline_has_cutout_and_half_the_probability_for_colors():
    columns = iter(NUMBERS.unbind(1))
    moved = _sample(IMAGES, _geometry(columns, 0.6, 16, 16))
    rest = [*columns]
    bgc = _color(moved, iter(rest), 0.6)
    colors, after = iter(rest), iter(rest[len(rest) - 3 :])
    r3gan = _cutout(_color(moved, colors, 0.3), after, 0.6)
    torch.testing.assert_close(transformed(IMAGES, NUMBERS, 0.6, "bgc"), bgc)
    torch.testing.assert_close(transformed(IMAGES, NUMBERS, 0.6, "r3gan"), r3gan)
    assert not torch.allclose(bgc, r3gan)


def test_computes_in_float32_also_under_autocast():
    half = IMAGES.bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        found = transformed(half, NUMBERS, 0.7)
    assert torch.equal(found, transformed(half.float(), NUMBERS, 0.7))


def chosen(first, *values):
    """Numbers that choose the operation from column `first` on, with values, and no other."""
    numbers = torch.full((1, NUM_NUMBERS), 0.999)
    for index, value in enumerate(values):
        numbers[0, first + index] = value
    return numbers


def test_mirrored_images_move_exactly():
    found = transformed(IMAGES[:1], chosen(0, 0.6, 0.0), 0.5)
    torch.testing.assert_close(found, IMAGES[:1].flip(-1), rtol=0, atol=1e-5)


def test_a_rectangle_is_turned_without_shearing():
    wide = torch.rand(1, 3, 16, 24, generator=DRAWN)
    turned = transformed(wide, chosen(2, 0.3, 0.0), 0.5)
    square = slice(4, 20)  # the central part, which covers itself
    torch.testing.assert_close(turned[..., square], wide[..., square].rot90(1, (-2, -1)), rtol=0, atol=1e-5)
    around = transformed(wide, chosen(2, 0.6, 0.0), 0.5)
    torch.testing.assert_close(around, wide.rot90(2, (-2, -1)), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("values", "axis"), [((0.75, 0.5, 0.0), -1), ((0.5, 0.75, 0.0), -2)])
def test_a_rectangle_is_shifted_by_a_share_of_each_side(values, axis):
    high = torch.rand(1, 3, 32, 16, generator=DRAWN)
    shifted, pixels = transformed(high, chosen(4, *values), 0.5), high.shape[axis] // 16  # half of an eighth
    kept = high.shape[axis] - pixels
    torch.testing.assert_close(shifted.narrow(axis, 0, kept), high.narrow(axis, pixels, kept), rtol=0, atol=1e-5)


def test_an_integer_shift_reflects_at_the_edge():
    shifted = transformed(IMAGES[:1], chosen(4, 0.75, 0.5, 0.0), 0.5)  # half of an eighth of 16 pixels to the left
    expected = torch.cat([IMAGES[:1, :, :, 1:], IMAGES[:1, :, :, -1:]], -1)
    torch.testing.assert_close(shifted, expected, rtol=0, atol=1e-5)


def test_colors_are_those_of_a_matrix_for_each_pixel():
    brightness, contrast, flip, hue, saturation = 0.3, 0.8, 0.7, 0.65, 0.4
    values = [entry for value in (brightness, contrast, flip, hue, saturation) for entry in (value, 0.0)]
    ours = _color(IMAGES[:1].double(), iter(chosen(0, *values).double().unbind(1)), 0.25)[0]
    normal = [math.sqrt(2) * torch.erfinv(torch.tensor(2 * v - 1, dtype=torch.float64)) for v in (0.3, 0.8, 0.4)]
    axis = torch.full((3,), 3**-0.5, dtype=torch.float64)
    along, angle = torch.outer(axis, axis), math.pi * (2 * hue - 1)
    cross = 3**-0.5 * torch.tensor([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], dtype=torch.float64)
    rotate = along + math.cos(angle) * (torch.eye(3) - along) + math.sin(angle) * cross
    matrix = (along + (torch.eye(3) - along) * 2 ** normal[2]) @ rotate @ (torch.eye(3) - 2 * along)
    matrix = matrix * 2 ** (0.5 * normal[1])
    expected = torch.einsum("ij,jhw->ihw", matrix, IMAGES[0].double() + 0.2 * normal[0])
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def test_cutout_hides_half_of_both_sides_around_a_center():
    columns = iter(torch.tensor([[0.0, 0.5, 0.0]]).unbind(1))
    hidden = _cutout(torch.ones(1, 1, 16, 32), columns, 1.0)[0, 0] == 0
    assert hidden[4:12, :8].all()
    assert hidden.sum() == 8 * 8


@pytest.mark.parametrize("check", [torch.autograd.gradcheck, torch.autograd.gradgradcheck])
def test_first_and_second_derivatives(check):
    images, numbers = IMAGES[:2, :, :4, :4].double().requires_grad_(), NUMBERS[:2].double()
    assert check(lambda x: transformed(x, numbers, 0.9).square(), images)
