import torch

from lit_gans.report.neighbors import nearest_images

REAL = torch.randint(0, 256, (50, 1, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def test_finds_the_nearest_images_over_all_batches_in_order():
    samples = torch.rand(4, 1, 16, 16, generator=torch.Generator().manual_seed(1))
    found, distances = nearest_images(samples, iter(REAL.split(7)), 3)
    every = (samples[:, None] - REAL[None].float() / 255).square().mean((2, 3, 4)).sqrt()
    expected, places = every.sort(dim=1)
    torch.testing.assert_close(distances, expected[:, :3], rtol=1e-4, atol=1e-5)
    for images, row in zip(found, places, strict=True):
        assert torch.equal(torch.stack(images), REAL[row[:3]])


def test_a_memorized_image_is_at_distance_0_whatever_its_size():
    large = REAL[:5].repeat_interleave(4, -1).repeat_interleave(4, -2)
    found, distances = nearest_images(large[3:4].float() / 255, iter([large]), 9)
    assert len(found[0]) == 5, "as many as there are"
    assert torch.equal(found[0][0], large[3])
    assert distances[0, 0] < 1e-6 < distances[0, 1]
