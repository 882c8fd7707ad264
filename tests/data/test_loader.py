import pytest
import torch

from lit_gans.common.errors import RefusedInput
from lit_gans.data.base import ImagesInMemory
from lit_gans.data.loader import ResumableLoader, StepSampler

IMAGES = ImagesInMemory(torch.zeros(25, 1, 2, 2, dtype=torch.uint8), torch.arange(25))
CHUNKS = [0, 7, 14, 21, 28, 35, 42]


def loader(workers=0, seed=0, batch_size=4, num_batches=1, rank=0, world_size=1):
    sampler = StepSampler(25, batch_size, num_batches, rank, world_size, seed)
    return ResumableLoader(IMAGES, sampler, workers, False, dict)


def epochs(loader, num):
    """The labels of each step from the loader's epoch on."""
    for epoch in range(loader.sampler.epoch, num):
        loader.sampler.set_epoch(epoch)
        for step in loader:
            yield step["label"].tolist()


def begun(loader, num):
    """The labels of the first steps, after which a run is interrupted."""
    return [step["label"].tolist() for _, step in zip(range(num), loader, strict=False)]


def test_order_depends_on_seed_and_epoch_and_every_image_is_unique():
    first, again = list(epochs(loader(), 2)), list(epochs(loader(), 2))
    assert first == again
    assert len(first) == 2 * 6, "the last batch is not full and is dropped"
    for epoch in (first[:6], first[6:]):
        shown = [label for step in epoch for label in step]
        assert len(set(shown)) == len(shown) == 24
    assert first[:6] != first[6:]
    assert first != list(epochs(loader(seed=1), 2))


@pytest.mark.parametrize("num_batches", [1, 3])
@pytest.mark.parametrize("window", [0, 14])
def test_two_ranks_with_half_the_batch_get_the_images_of_one_rank(num_batches, window):
    def steps(batch_size, rank, world_size):
        sampler = StepSampler(50, batch_size, num_batches, rank, world_size, 0, True, window, CHUNKS)
        return torch.stack(list(sampler)).unflatten(1, (num_batches, -1))

    assert torch.equal(torch.cat([steps(2, rank, 2) for rank in (0, 1)], 2), steps(4, 0, 1))


def test_whether_an_image_is_mirrored_does_not_depend_on_the_order():
    rows = [torch.cat(list(StepSampler(50, 1, 1, 0, 1, 0, True, window, CHUNKS))) for window in (0, 14)]
    mirrored, again = ({row - 50 for row in each.tolist() if row >= 50} for each in rows)
    assert mirrored == again
    assert 10 < len(mirrored) < 40


@pytest.mark.parametrize(("workers", "boundary"), [(0, 1), (0, 6), (2, 2), (2, 6)])
def test_resumes_at_every_step_boundary(workers, boundary):
    """Workers fetch ahead, and what they fetched does not count."""
    uninterrupted = list(epochs(loader(), 2))
    first, resumed = loader(workers), loader(2 - workers)
    assert begun(first, boundary) == uninterrupted[:boundary]
    assert first.state_dict()["images"] == boundary * 4
    resumed.load_state_dict(first.state_dict())
    later = epochs(resumed, 2)
    found = [next(later)]
    assert resumed.state_dict()["images"] == (boundary % 6 + 1) * 4, "of a second interruption"
    assert found + list(later) == uninterrupted[boundary:]


@pytest.mark.parametrize("boundary", [3, 6])
def test_a_state_that_is_saved_before_the_first_batch_of_a_resumed_run_keeps_the_position(boundary):
    uninterrupted, first = list(epochs(loader(), 2)), loader()
    begun(first, boundary)
    resumed, again = loader(), loader()
    resumed.load_state_dict(first.state_dict())
    again.load_state_dict(resumed.state_dict())
    assert list(epochs(again, 2)) == uninterrupted[boundary:]


def test_a_look_at_a_batch_does_not_change_where_a_resumed_epoch_starts():
    uninterrupted, first, resumed = list(epochs(loader(), 2)), loader(), loader()
    begun(first, 3)
    resumed.load_state_dict(first.state_dict())
    assert begun(resumed, 1) == uninterrupted[3:4]
    assert list(epochs(resumed, 2)) == uninterrupted[3:]


def test_a_state_that_is_saved_between_two_shortened_epochs_resumes_at_the_start_of_the_second_epoch():
    """`limit_train_batches` shortens epochs."""
    uninterrupted, first, resumed = list(epochs(loader(), 2)), loader(), loader()
    begun(first, 2)
    first.sampler.set_epoch(1)
    assert first.state_dict()["images"] == 0
    resumed.load_state_dict(first.state_dict())
    assert list(epochs(resumed, 2)) == uninterrupted[6:]


@pytest.mark.parametrize("boundary", [1, 3])
def test_resumes_with_a_different_number_of_ranks(boundary):
    first = loader(num_batches=2)
    uninterrupted = list(epochs(first, 2))
    first.sampler.set_epoch(0)
    begun(first, boundary)
    halves = [loader(batch_size=2, num_batches=2, rank=rank, world_size=2) for rank in (0, 1)]
    for half in halves:
        half.load_state_dict(first.state_dict())
    later = zip(*(epochs(half, 2) for half in halves), strict=True)
    assert [one[:2] + two[:2] + one[2:] + two[2:] for one, two in later] == uninterrupted[boundary:]


RARE = torch.tensor([0] * 40 + [1] * 7 + [2] * 3)


def weighted(batch_size=5, rank=0, world_size=1, epoch=0):
    sampler = StepSampler(50, batch_size, 1, rank, world_size, 0, weights=(1.0, 1.0, 2.0), labels=RARE)
    sampler.set_epoch(epoch)
    return sampler


def test_weighted_ranks_take_disjoint_parts_of_one_order():
    both = torch.cat([torch.stack(list(weighted(5, rank, 2))) for rank in (0, 1)], 1)
    assert torch.equal(both, torch.stack(list(weighted(10))))
    assert not torch.equal(both, torch.stack(list(weighted(10, epoch=1))))


def test_no_image_of_a_class_comes_again_before_all_others_of_it():
    rows = torch.cat(list(weighted()))
    for number, num in enumerate(RARE.bincount().tolist()):
        own = rows[RARE[rows] == number]
        for round_ in own.split(num):
            assert len(round_.unique()) == len(round_)
    rare = rows[rows >= 47]
    assert len(rare) > 2 * 3, "more often than without weights"


def test_different_data_and_too_few_images_are_refused():
    for name, value in {"num_images": 20, "seed": 1, "flip": True, "window": 3, "class_weights": "1.0"}.items():
        with pytest.raises(RefusedInput, match=f"trained on data with {name}={value}, but this run has"):
            loader().load_state_dict(loader().state_dict() | {name: value})
    with pytest.raises(
        RefusedInput, match=r"has 25 images, but one step needs 52 \(batch_size 13 x 2 .*batch_size=6 or less"
    ):
        StepSampler(25, 13, 2, 0, 2, 0)
    assert len(StepSampler(25, 6, 2, 0, 2, 0)) == 1
    with pytest.raises(RefusedInput, match=r"use more images, fewer processes, or fewer batches per step"):
        StepSampler(3, 1, 2, 0, 2, 0)


def test_window_reads_few_chunks_per_step_and_every_image_once():
    sampler = StepSampler(43, 2, 1, 0, 1, 0, window=14, chunks=CHUNKS)  # the last chunk has one image
    steps = torch.stack(list(sampler)).flatten()
    assert len(steps.unique()) == 42
    numbers = torch.bucketize(steps, torch.tensor(CHUNKS), right=True) - 1
    for window in numbers.split(14):
        assert len(window.unique()) <= 4
    assert numbers[:14].diff().ne(0).sum() > 5, "mixed within a window"
    sampler.set_epoch(1)
    assert not torch.equal(torch.stack(list(sampler)).flatten(), steps)


def test_global_random_state_is_unchanged():
    before = torch.get_rng_state()
    list(loader(2))
    assert torch.equal(before, torch.get_rng_state())
