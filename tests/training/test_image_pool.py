import torch

from lit_gans.models.cyclegan import ImagePool


def numbers(*rows):
    return torch.tensor(rows)


def image(value):
    return torch.full((1, 1, 2, 2), float(value))


def test_images_fill_it_then_stay_or_are_exchanged():
    pool = ImagePool(3)
    first = torch.cat([image(value) for value in (1, 2)])
    assert torch.equal(pool.exchange(first, numbers([0.9, 0.9], [0.9, 0.9])), first)
    seen = pool.exchange(
        torch.cat([image(value) for value in (3, 4, 5, 6)]), numbers([0.9, 0.0], [0.49, 0.5], [0.5, 0.5], [0.99, 0.34])
    )
    # 3 fills it, 4 stays outside, 5 comes for 2, and 6 for 5
    assert seen[:, 0, 0, 0].tolist() == [3, 4, 2, 5]
    assert pool.images[:, 0, 0, 0].tolist() == [1, 6, 3]
    assert pool.count.item() == 3


def test_half_are_exchanged_for_any_place():
    pool, draw = ImagePool(10), torch.Generator().manual_seed(0)
    new = torch.arange(2010.0)[:, None, None, None]
    seen = pool.exchange(new, torch.rand(2010, 2, generator=draw))[10:].flatten()
    old = new.flatten()[10:] - seen
    assert 900 < (old > 0).sum() < 1100
    assert (old >= 0).all()
    assert old.max() > 50, "some stay for long"
    assert pool.images.unique().numel() == 10


def test_a_state_is_a_copy_and_comes_back():
    pool, other = ImagePool(2), ImagePool(2)
    assert pool.state_dict() == {}
    pool.exchange(torch.cat([image(1), image(2)]), torch.zeros(2, 2))
    state = pool.state_dict()
    pool.exchange(image(3), numbers([0.9, 0.0]))
    assert state["images"][:, 0, 0, 0].tolist() == [1, 2]
    other.load_state_dict(state)
    assert other.exchange(image(3), numbers([0.9, 0.0])).unique().item() == 1
    assert torch.equal(other.images, pool.images)
    other.load_state_dict({})
    assert other.exchange(image(7), numbers([0.9, 0.0])).unique().item() == 7, "empty again"
