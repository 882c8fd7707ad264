from unittest.mock import create_autospec

import pytest
import torch
from lightning.pytorch import Trainer

from lit_gans.common.errors import RefusedInput
from lit_gans.data.base import ImagesInMemory
from lit_gans.data.loader import ResumableLoader, StepSampler

IMAGES = ImagesInMemory(torch.zeros(25, 1, 2, 2, dtype=torch.uint8), torch.arange(25))


def loader(workers=0, seed=0, num_images=25, batch_size=4):
    dataset = ImagesInMemory(IMAGES.images[:num_images], IMAGES.labels[:num_images])
    return ResumableLoader(dataset, StepSampler(num_images, batch_size, 1, 0, 1, seed), workers, False)


def epochs(loader, num, start=0):
    for epoch in range(start, start + num):
        loader.sampler.set_epoch(epoch)
        for step in loader:
            yield step["label"].tolist()


def test_order_depends_on_seed_and_epoch_and_every_image_is_unique():
    first, again = list(epochs(loader(), 2)), list(epochs(loader(), 2))
    assert first == again
    assert len(first) == 2 * 6
    for epoch in (first[:6], first[6:]):
        shown = [label for step in epoch for label in step]
        assert len(set(shown)) == len(shown) == 24
    assert first[:6] != first[6:]
    assert first != list(epochs(loader(seed=1), 2))


@pytest.mark.parametrize("num_batches", [1, 3])
def test_two_ranks_with_half_the_batch_get_the_images_of_one_rank(num_batches):
    one = list(StepSampler(50, 4, num_batches, 0, 1, seed=0))
    two = [list(StepSampler(50, 2, num_batches, rank, 2, seed=0)) for rank in (0, 1)]
    for step, *halves in zip(one, *two, strict=True):
        for batch, *shards in zip(step.chunk(num_batches), *(half.chunk(num_batches) for half in halves), strict=True):
            assert torch.equal(batch, torch.cat(shards))


@pytest.mark.parametrize("workers", [0, 2])
def test_resumes_at_every_step_boundary(workers):
    uninterrupted = list(epochs(loader(), 2))
    for boundary in range(1, 7) if workers == 0 else (3,):
        first = loader(workers)
        begun = [step["label"].tolist() for step, _ in zip(first, range(boundary), strict=False)]
        assert begun == uninterrupted[:boundary]
        resumed = loader(workers)
        resumed.load_state_dict({**first.state_dict(), "images": boundary * 4})
        start = resumed.sampler.epoch
        assert list(epochs(resumed, 2 - start, start)) == uninterrupted[boundary:]


def test_state_counts_yielded_images():
    resumable = loader()
    iterator = iter(resumable)
    next(iterator)
    next(iterator)
    assert resumable.state_dict() == {"epoch": 0, "images": 8, "num_images": 25, "seed": 0, "flip": False, "window": 0}


def test_different_data_and_too_few_images_are_refused():
    with pytest.raises(RefusedInput, match="num_images=25"):
        loader(num_images=20).load_state_dict(loader().state_dict())
    with pytest.raises(RefusedInput, match="trained on data with flip=True, this run has False"):
        loader().load_state_dict(loader().state_dict() | {"flip": True})
    with pytest.raises(RefusedInput, match=r"the data has 25 images, one step needs 52 \(batch_size 13 x 2 batches"):
        StepSampler(25, 13, 2, 0, 2, 0)
    with pytest.raises(RefusedInput, match=r"use data\.batch_size=6 or less\.$"):
        StepSampler(25, 7, 2, 0, 2, 0)
    assert len(StepSampler(25, 6, 2, 0, 2, 0)) == 1
    with pytest.raises(RefusedInput, match=r"use more images, fewer processes, or fewer batches per step"):
        StepSampler(3, 1, 2, 0, 2, 0)


def test_window_reads_few_chunks_per_step_and_every_image_once():
    chunks = [0, 7, 14, 21, 28, 35, 42]  # the last has one image
    sampler = StepSampler(43, 2, 1, 0, 1, 0, window=14, chunks=chunks)
    steps = torch.stack(list(sampler)).flatten()
    assert len(steps.unique()) == 42
    numbers = torch.bucketize(steps, torch.tensor(chunks), right=True) - 1
    for window in numbers.split(14):
        assert len(window.unique()) <= 4
    assert numbers[:14].diff().ne(0).sum() > 5, "mixed within a window"
    sampler.set_epoch(1)
    assert not torch.equal(torch.stack(list(sampler)).flatten(), steps)


def test_global_random_state_is_unchanged():
    before = torch.get_rng_state()
    list(loader(2))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("num_batches", [1, 3])
def test_ranks_get_disjoint_images(num_batches):
    ranks = [list(StepSampler(50, 4, num_batches, rank, 2, seed=0)) for rank in (0, 1)]
    first, second = (torch.cat(steps).tolist() for steps in ranks)
    assert len({*first, *second}) == len(first) + len(second) == 50 // (8 * num_batches) * 8 * num_batches


@pytest.mark.parametrize("boundary", [1, 2, 3])
def test_resumes_with_a_different_number_of_ranks(boundary):
    def steps(batch_size, rank, world_size):
        sampler = StepSampler(25, batch_size, 2, rank, world_size, 0)
        return ResumableLoader(IMAGES, sampler, 0, False)

    first = steps(4, 0, 1)
    uninterrupted = list(epochs(first, 2))
    first.sampler.set_epoch(0)
    for _, _ in zip(range(boundary), first, strict=False):
        pass
    state = first.state_dict()
    assert state["images"] == boundary * 8
    halves = [steps(2, rank, 2) for rank in (0, 1)]
    for half in halves:
        half.load_state_dict(state)
    start = halves[0].sampler.epoch
    assert start == (1 if boundary == 3 else 0)
    later = zip(*(epochs(half, 2 - start, start) for half in halves), strict=True)
    joined = [one[:2] + two[:2] + one[2:] + two[2:] for one, two in later]
    assert joined == uninterrupted[boundary:]


@pytest.mark.parametrize("boundary", [1, 2, 5, 6])
def test_resumes_identically_with_and_without_workers(boundary):
    uninterrupted, first, resumed = list(epochs(loader(), 2)), loader(2), loader(2)
    for _, _ in zip(range(boundary), first, strict=False):
        pass
    resumed.load_state_dict(loader_state(first, boundary))
    start = resumed.sampler.epoch
    assert list(epochs(resumed, 2 - start, start)) == uninterrupted[boundary:]


def loader_state(used, boundary):
    """The state after `boundary` steps: workers fetch ahead, and what they fetched must not count."""
    state = used.state_dict()
    assert state["images"] == boundary * 4
    return state


def test_state_after_a_second_resume():
    first = loader()
    first.load_state_dict({"epoch": 0, "images": 8, "num_images": 25, "seed": 0, "flip": False, "window": 0})
    next(iter(first))
    assert first.state_dict()["images"] == 12


def test_datamodule_serves_the_batches_of_its_module_and_rank(random_images):
    data, trainer = random_images(batch_size=4, seed=9), create_autospec(Trainer, instance=True)
    trainer.global_rank, trainer.world_size = 1, 2
    trainer.lightning_module.batches_per_step = 3
    trainer.strategy.root_device = torch.device("cpu")
    data.trainer = trainer
    served, expected = data.train_dataloader(), list(StepSampler(48, 4, 3, 1, 2, 9))
    assert [step["label"].tolist() for step in served] == [(step % 10).tolist() for step in expected]
    assert served.num_workers == 0
    assert random_images(num_workers=2).train_dataloader().num_workers == 2
    data.setup("fit")
    trainer.world_size = 100
    with pytest.raises(RefusedInput, match="one step needs 1200"):
        data.setup("fit")
