import math

import torch

from lit_gans.latents.interpolation import slerp


def test_a_walk_keeps_the_length_and_turns_by_equal_angles():
    turned = torch.tensor([[3.0, 0.0], [0.0, 3.0]])
    walk = slerp(turned[:1], turned[1:], steps=4)[0]
    angles = [index * math.pi / 6 for index in range(4)]
    expected = torch.tensor([[3 * math.cos(angle), 3 * math.sin(angle)] for angle in angles])
    torch.testing.assert_close(walk, expected)


def test_a_walk_reaches_both_ends_for_latents_of_different_lengths():
    start, end = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0))
    walks = slerp(start, end, steps=3)
    torch.testing.assert_close(walks[:, 0], start)
    torch.testing.assert_close(walks[:, -1], end)


def test_a_walk_between_equal_latents_stays():
    start = torch.tensor([[1.0, 2.0]])
    torch.testing.assert_close(slerp(start, start, steps=3), start.expand(1, 3, 2), rtol=1e-3, atol=1e-3)
