import copy

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from lit_gans.callbacks import EMA, PairedMetrics, Watch
from lit_gans.common.errors import RefusedInput
from lit_gans.common.operations import count_operations
from lit_gans.data.sources.digits import Digits
from lit_gans.data.sources.unpaired import Unpaired
from lit_gans.models.cyclegan import CycleGAN, ImagePool
from lit_gans.training.backend import Backend
from lit_gans.training.penalties import r1_penalty
from lit_gans.training.step import TrainingStep

STEPS, POOL = 6, 5


@pytest.fixture
def module(tiny_gan):
    return tiny_gan("cyclegan")


class Pool:
    """The pool of the paper's section 4, as a list."""

    def __init__(self):
        self.stored = []

    def __call__(self, images, numbers):
        seen = []
        for image, (exchanged, which) in zip(images, numbers.tolist(), strict=True):
            if len(self.stored) < POOL:
                self.stored.append(image)
            elif exchanged >= 0.5:
                place = int(which * POOL)
                image, self.stored[place] = self.stored[place], image
            seen.append(image)
        return torch.stack(seen)


def plain_loop(module, batches, numbers, cycle, identity):
    """Trains copies of the networks by equations 1 to 3 and section 5.2, and returns them."""
    to_b, to_a, judge_a, judge_b = map(
        copy.deepcopy,
        (module.generator.a_to_b, module.generator.b_to_a, module.discriminator_a, module.discriminator_b),
    )
    of_both = torch.optim.Adam([*to_b.parameters(), *to_a.parameters()], 2e-4, (0.5, 0.999))
    of_judges = [torch.optim.Adam(judge.parameters(), 2e-4, (0.5, 0.999)) for judge in (judge_a, judge_b)]
    pools = Pool(), Pool()
    for step, (batch, drawn) in enumerate(zip(batches, numbers, strict=True)):
        for optimizer in (of_both, *of_judges):
            optimizer.param_groups[0]["lr"] = 2e-4 * min(1.0, (STEPS - step) / (STEPS / 2))
        a, b = (batch[name].double() / 127.5 - 1 for name in ("input", "image"))
        fake_b, fake_a = to_b(a), to_a(b)
        shown = [pools[1](fake_a.detach(), drawn[:, 2:]), pools[0](fake_b.detach(), drawn[:, :2])]
        loss = ((judge_b(fake_b) - 1) ** 2).mean() + ((judge_a(fake_a) - 1) ** 2).mean()
        loss = loss + cycle * ((to_a(fake_b) - a).abs().mean() + (to_b(fake_a) - b).abs().mean())
        loss = loss + cycle * identity * ((to_b(b) - b).abs().mean() + (to_a(a) - a).abs().mean())
        of_both.zero_grad()
        loss.backward()
        of_both.step()
        for judge, optimizer, real, fake in zip((judge_a, judge_b), of_judges, (a, b), shown, strict=True):
            loss = (((judge(real) - 1) ** 2).mean() + (judge(fake) ** 2).mean()) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return to_b, to_a, judge_a, judge_b


@pytest.mark.parametrize(("identity", "accumulate"), [(0.5, 1), (0.0, 1), (0.5, 2)])
def test_a_training_is_that_of_a_plain_loop(tiny_gan, random_images, fit, identity, accumulate):
    """Losses, the pool, the decay, the order of steps, and one optimizer of both generators: in float64, two epochs."""
    settings = {"identity_weight": identity, "accumulate_gradients": accumulate}
    module = tiny_gan("cyclegan", jitter=False, pool_size=POOL, channels_last=False, **settings)
    numbers = torch.rand(STEPS, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    drawn = iter(numbers)
    module.sample_noise = lambda noise, num: {"jitter": torch.zeros(num, 6), "pool": next(drawn)}
    module.double()
    data = random_images(batch_size=4)
    expected = plain_loop(module, [*data.train_dataloader()][:STEPS], numbers, 10.0, identity)
    trainer = fit(module, random_images(batch_size=4 // accumulate), max_steps=STEPS, precision="64-true")
    found = module.generator.a_to_b, module.generator.b_to_a, module.discriminator_a, module.discriminator_b
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=1e-10)
    assert len(trainer.optimizers) == 3
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0, "at the end"


def test_defaults_are_the_papers():
    with torch.device("meta"):
        large, small = CycleGAN(), CycleGAN(image_size=128)
    sizes = [
        sum(weight.numel() for weight in m.generator.a_to_b.parameters() if weight.dim() == 4) for m in (large, small)
    ]
    ends = 3 * 49 * 64 * 2 + 9 * 64 * 128 * 2 + 9 * 128 * 256 * 2
    assert sizes == [ends + blocks * 2 * 9 * 256 * 256 for blocks in (9, 6)]
    patches = large.discriminator_a(torch.empty(1, 3, 256, 256, device="meta"))
    assert patches.shape == (1, 30, 30), "of 70x70 pixels"


@pytest.mark.parametrize("num", [1, 2, 9])
def test_a_batch_is_exchanged_as_its_images_one_after_the_other(monkeypatch, num):
    """Several images of a batch of 9 meet in the same place; after each batch, the pool is saved and loaded."""
    targets, write = [], torch.Tensor.index_copy_
    monkeypatch.setattr(torch.Tensor, "index_copy_", lambda *args: targets.append(args[2].tolist()) or write(*args))
    generator = torch.Generator().manual_seed(0)
    plain, pool = Pool(), ImagePool(POOL)
    for _ in range(20):
        images, numbers = torch.rand(num, 1, 2, 2, generator=generator), torch.rand(num, 2, generator=generator)
        expected = plain(images, numbers)
        assert torch.equal(pool.exchange(images, numbers), expected)
        written = [target for target in targets.pop() if target < POOL]
        assert len({*written}) == len(written), "CUDA writes in any order"
        stored, state = torch.stack(plain.stored), pool.state_dict()
        assert torch.equal(state["images"][: len(stored)], stored)
        assert state["count"] == len(stored)
        pool = ImagePool(POOL)
        pool.load_state_dict(state)


def test_a_larger_batch_is_exchanged_by_as_many_operations():
    counts = []
    for num in (2, 16):
        pool, images, numbers = ImagePool(POOL), torch.rand(num, 1, 2, 2), torch.rand(num, 2)
        counts.append(count_operations(lambda args=(images, numbers), pool=pool: pool.exchange(*args)))
    assert counts[0] == counts[1]


def test_a_second_training_begins_with_an_empty_pool(module, random_images, fit):
    fit(module, random_images(batch_size=4), max_steps=2)
    before = module._pools
    fit(module, random_images(batch_size=2), max_steps=1)
    assert module._pools is not before
    assert [pool.count.item() for pool in module._pools] == [2, 2]


def test_crops_of_the_domains_are_drawn_apart(module):
    ramp = torch.arange(24.0).expand(64, 1, 24, 24)
    numbers = torch.rand(64, 6, generator=torch.Generator().manual_seed(0))
    batch = module.augment({"image": ramp, "input": ramp, "jitter": numbers})
    firsts = [batch[name].amin((1, 2, 3)) for name in ("image", "input")]
    assert batch["image"].shape == (64, 1, 16, 16)
    assert (firsts[0] != firsts[1]).sum() > 10
    mirrored = [batch[name][:, 0, 0, 0] > batch[name][:, 0, 0, -1] for name in ("image", "input")]
    assert 16 < (mirrored[0] != mirrored[1]).sum() < 48


def test_penalties_are_those_of_what_each_discriminator_sees(tiny_gan, random_images, fit):
    """R1 with and without a forward of its own, and R2 at what the pool returns."""
    for shared in (False, True):
        module = tiny_gan("cyclegan", r1_gamma=2.0, r2_gamma=3.0, share_scores=shared, jitter=False)
        fit(module, random_images(batch_size=4), max_steps=3)
        a, b, *fakes = torch.rand(4, 4, 1, 16, 16, generator=torch.Generator().manual_seed(0))
        exchanged = {name: fake.flip(0) for name, fake in zip(("fake", "fake_input"), fakes, strict=True)}
        module.discriminator_batch = lambda batch, exchanged=exchanged: batch | exchanged
        batch = {"image": b, "input": a, "fake": fakes[0], "fake_input": fakes[1]}
        found = TrainingStep(module, Backend({})).discriminator_terms(batch)
        sides = ("discriminator_a", a, exchanged["fake_input"]), ("discriminator_b", b, exchanged["fake"])
        for name, real, made in sides:
            network = module.get_submodule(name)
            expected = 2.0 * r1_penalty(network, real) + 3.0 * r1_penalty(network, made)
            torch.testing.assert_close(found[name][1], expected)
            loss = ((network(real) - 1) ** 2).mean() / 2 + (network(made) ** 2).mean() / 2
            torch.testing.assert_close(found[name][0], loss)


def test_health_is_that_of_each_discriminator_with_its_own_domain(module, random_images, fit):
    data, watch = random_images(), Watch()
    trainer = fit(module, data, max_steps=1)
    with torch.no_grad():
        for judge in (module.discriminator_a, module.discriminator_b):
            judge.layers[-1].bias.fill_(0.5)  # so that scores lie on both sides of the threshold
    batch = data.dataset[torch.arange(8)]
    watch._look(trainer, module, batch)
    a, b = (batch[name] / 127.5 - 1 for name in ("input", "image"))
    expected = {}
    with torch.no_grad():
        fake_b, fake_a = module.generator(a, b)
        sides = (module.discriminator_a, a, fake_a), (module.discriminator_b, b, fake_b)
        for name, (judge, real, fake) in zip(module.discriminator_names, sides, strict=True):
            on_real, on_fake = ((judge(images) > 0.5).double().mean().item() for images in (real, fake))
            expected[name] = min(on_real, 1 - on_fake)
    assert watch.looks[0].accuracy == pytest.approx(expected)
    assert all(0 < value < 1 for value in expected.values())


def test_both_directions_and_their_exchange(module):
    module.start_average()
    with torch.no_grad():
        for weight in module.averaged_generator.parameters():
            weight.add_(0.01)
    pictures = torch.rand(3, 1, 16, 16)
    there, back = (module.translate(pictures, direction=way) for way in module.directions)
    network = module.averaged_generator
    torch.testing.assert_close(there, (network.a_to_b(pictures * 2 - 1) + 1) / 2)
    torch.testing.assert_close(back, (network.b_to_a(pictures * 2 - 1) + 1) / 2)
    raw = module.translate(pictures, direction="b_to_a", weights="raw", batch_size=2)
    torch.testing.assert_close(raw, (module.generator.b_to_a(pictures * 2 - 1) + 1) / 2)
    of_b = module.discriminator_b
    module.exchange_domains()
    assert torch.equal(module.translate(pictures), back)
    assert torch.equal(module.translate(pictures, direction="b_to_a"), there)
    torch.testing.assert_close(module.translate(pictures, weights="raw"), raw)
    assert module.discriminator_a is of_b


@pytest.mark.parametrize("size", [(30, 41), (3, 5)])
def test_full_size_images_keep_their_size(module, size):
    assert module.translate(torch.rand(2, 1, *size)).shape == (2, 1, *size)


def test_the_grid_shows_both_cycles(module, random_images):
    data = random_images()
    grid, columns = module.sample_grid(13, 0, data)
    assert (grid.shape, columns) == ((12, 1, 16, 16), 2)
    a, fake_b, back_a, b, fake_a, back_b = grid.split(2)
    for shown, name, rows in ((a, "input", (0, 24)), (b, "image", (0, 24))):
        torch.testing.assert_close(shown, data.held_out[name][torch.tensor(rows)] / 255)
    torch.testing.assert_close(fake_b, module.translate(a))
    torch.testing.assert_close(back_a, module.translate(fake_b, direction="b_to_a"))
    torch.testing.assert_close(fake_a, module.translate(b, direction="b_to_a"))
    torch.testing.assert_close(back_b, module.translate(fake_a))


def test_l1_is_measured_both_ways(module, random_images, fit):
    data, measured = random_images(), PairedMetrics(num_samples=10, batch_size=4)
    fit(module, data, max_steps=2, callbacks=[EMA(), measured])
    a, b = (data.held_out[name][:10] / 255 for name in ("input", "image"))
    expected = {
        "metric/l1": (module.translate(a) - b).abs().mean().item(),
        "metric/l1_b_to_a": (module.translate(b, direction="b_to_a") - a).abs().mean().item(),
    }
    assert measured.values == pytest.approx(expected, rel=1e-5)
    assert measured.directions == dict.fromkeys(expected, "min")


def test_a_training_on_crops_of_two_folders_shows_full_size_images(tiny_gan, fit, tmp_path):
    for folder, num in {"A": 5, "B": 3}.items():
        (tmp_path / "both" / folder).mkdir(parents=True)
        for index in range(num):
            pixels = np.random.default_rng(index).integers(0, 256, (30 + index, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "both" / folder / f"{folder}{index}.png")
    sizes = {"image_size": 16, "whole_size": (24, 40), "channels": 1, "batch_size": 2}
    data = Unpaired(str(tmp_path / "both"), cache=str(tmp_path / "cache"), **sizes)
    module = tiny_gan("cyclegan")
    trainer = fit(module, data, max_steps=3)
    assert trainer.global_step == 3
    grid, columns = module.sample_grid(6, 0, data)
    assert (grid.shape, columns) == ((6, 1, 24, 40), 1)
    with pytest.raises(RefusedInput, match="pix2pix needs pairs"):
        fit(tiny_gan("pix2pix"), data, max_steps=1)


def test_refusals(module, tiny_gan, fit):
    with pytest.raises(RefusedInput, match="needs images of two domains: use data=unpaired with two folders"):
        fit(module, Digits(image_size=16), max_steps=1)
    with pytest.raises(RefusedInput, match="call translate"):
        module.sample(2)
    with pytest.raises(RefusedInput, match="loader yields no images to translate"):
        fit(module, DataLoader(torch.zeros(4, 1, 16, 16), batch_size=2), max_steps=1)
    with pytest.raises(RefusedInput, match=r"direction=b_to_a: pix2pix only supports a_to_b"):
        tiny_gan("pix2pix").translate(torch.rand(1, 1, 16, 16), direction="b_to_a")

    wrong = {"cycle_weight": -1.0, "identity_weight": float("nan"), "blocks": 0, "generator_batch_multiple": 2}
    for name, value in wrong.items():
        with pytest.raises(RefusedInput, match=name):
            tiny_gan("cyclegan", **{name: value})
