import math

import numpy as np
import pytest
import torch
from PIL import Image

from lit_gans.common.errors import RefusedInput
from lit_gans.data.sources.points import Grid, Ring


def test_the_ring_has_eight_centers_at_radius_two_in_equal_steps():
    centers = Ring().centers
    assert centers.shape == (8, 2)
    torch.testing.assert_close(centers.norm(dim=1), torch.full((8,), 2.0))
    neighbors = (centers - centers.roll(1, 0)).norm(dim=1)
    torch.testing.assert_close(neighbors, torch.full((8,), 4 * math.sin(math.pi / 8)))


def test_the_grid_has_twenty_five_centers_of_spacing_two_around_zero():
    centers = {tuple(center) for center in Grid().centers.tolist()}
    assert centers == {(x, y) for x in (-4, -2, 0, 2, 4) for y in (-4, -2, 0, 2, 4)}


@pytest.mark.parametrize(("source", "std"), [(Ring, math.sqrt(0.02)), (Grid, 0.05)])
def test_every_mode_has_as_many_points_with_its_mean_and_deviation(source, std):
    data = source(num_points=50_000)
    images, labels = data.dataset.images, data.dataset.labels
    assert images.shape == (50_000, 2, 1, 1)
    assert data.num_modes == len(data.centers)
    num = 50_000 / data.num_modes
    assert (labels.bincount(minlength=data.num_modes) - num).abs().max() < 5 * math.sqrt(num)
    for mode, center in enumerate(data.centers):
        points = images[labels == mode].flatten(1)
        error = 5 * std / math.sqrt(len(points))
        assert (points.mean(0) - center).abs().max() < error
        covariance = points.T.cov()
        torch.testing.assert_close(covariance, std**2 * torch.eye(2), rtol=0.1, atol=0.06 * std**2)


def test_a_point_belongs_to_the_mode_within_three_deviations_and_else_to_none():
    data = Grid(std=0.1)
    angles = torch.arange(len(data.centers)) * 1.0
    directions = torch.stack([angles.cos(), angles.sin()], 1)
    for deviations, expected in ((0, range(25)), (2.95, range(25)), (3.05, [-1] * 25), (7, [-1] * 25)):
        points = data.centers + deviations * data.std * directions
        assert data.modes_of(points[:, :, None, None]).tolist() == list(expected)


def test_points_depend_on_the_seed_alone():
    torch.manual_seed(1)
    first = Ring(num_points=50).dataset
    torch.manual_seed(2)
    again, other = Ring(num_points=50).dataset, Ring(num_points=50, seed=1).dataset
    assert torch.equal(first.images, again.images)
    assert torch.equal(first.labels, again.labels)
    assert not torch.equal(first.images, other.images)


def test_a_point_is_one_pixel():
    with pytest.raises(RefusedInput, match="image_size=2: a point is an image of 1 pixel"):
        Ring(image_size=2)


def test_no_points_are_refused():
    with pytest.raises(RefusedInput, match="num_points=-1 must be at least 1"):
        Ring(num_points=-1)


def drawn(data, point, path):
    """Row and column of a plot's red pixels, those of generated points: the median, as there is a legend too."""
    cloud = torch.tensor(point) + 0.1 * torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    data.plot(cloud[:, :, None, None], path)
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    assert (np.ptp(pixels, axis=2) == 0)[pixels[..., 0] < 250].sum() > 100, "real points are gray"
    red = np.argwhere(pixels[..., 0] - pixels[..., 1] > 100)
    return np.median(red, 0)


def test_a_plot_shows_generated_points_where_they_are(tmp_path):
    data = Ring(num_points=500)
    down, left = drawn(data, [-2.0, -2.0], tmp_path / "one.png")
    up, right = drawn(data, [1.0, 1.0], tmp_path / "other.png")
    assert up < down - 50
    assert left < right - 50
    assert right - left == pytest.approx(down - up, abs=5), "equal axes"
