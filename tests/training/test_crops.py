import torch

from lit_gans.training.translator import random_crops


def test_crops_are_parts_of_the_images_at_the_places_of_the_numbers():
    images = torch.arange(3 * 2 * 6 * 9.0).reshape(3, 2, 6, 9)
    numbers = torch.tensor([[0.0, 0.0], [0.999, 0.999], [0.4, 0.5]])  # of 3 rows and 5 columns to begin with
    crops = random_crops(images, numbers, (4, 5))
    expected = [images[0, :, :4, :5], images[1, :, 2:, 4:], images[2, :, 1:5, 2:7]]
    assert torch.equal(crops, torch.stack(expected))


def test_every_place_is_equally_likely():
    numbers = (torch.arange(300) / 300)[:, None].expand(-1, 2)
    rows = torch.arange(5.0)[:, None].expand(300, 1, 5, 4)
    assert random_crops(rows, numbers, (3, 4))[:, 0, 0, 0].long().bincount().tolist() == [100, 100, 100]
