"""Augmentations in the loop: real and fake alike in both turns, the state of a probability, and ranks."""

import pytest
import torch
from torch.nn.functional import softplus

from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import Noise
from lit_gans.training.ada_operations import NUM_NUMBERS, transformed
from lit_gans.training.augmentation import Adaptive, Augmentations, Scheduled
from lit_gans.training.diffaugment import augmented
from lit_gans.training.schedules import CosineSchedule, LinearSchedule, Progress
from lit_gans.training.step import TrainingStep
from tests.training.linear_gan import PLAIN, SMALL, LinearGAN, descend, linear_gan


class Relativistic(LinearGAN):
    """Both losses compare real and generated images in pairs (Jolicoeur-Martineau 2019)."""

    def discriminator_losses(self, real, fake, batch):
        return {"discriminator": softplus(self.discriminator(fake) - self.discriminator(real)).mean()}

    def generator_loss(self, fake, batch):
        return softplus(self.discriminator(batch["image"]) - self.discriminator(fake)).mean()


def test_a_training_equals_a_plain_loop_that_augments_all_images_in_every_step(random_images, fit):
    """With augmentations that are always applied, and behind them one with a scheduled probability."""
    names, schedule = ("color", "translation", "cutout"), CosineSchedule(0.7, 0.0, over=100, unit="images")
    settings = {"diffaugment": names, "augmentation": Scheduled(schedule), **PLAIN}
    trained, plain = (Relativistic(image_size=16, channels=1, latent_dim=6, **settings) for _ in range(2))
    data = random_images(batch_size=8)
    fit(trained, data, max_steps=3)
    for iteration, step in enumerate(list(data._sampler())[:3]):
        images = data.dataset.images[step].float() / 127.5 - 1
        probability = schedule.at(Progress(iteration, images=8 * iteration))
        for turn, key in (("discriminator", (iteration, 0)), ("generator", (iteration,))):
            noise = Noise(torch.Generator(), (0, turn, *key))
            made = plain.generator(noise.normal("latents", 8, 6))
            first, second = noise.uniform("diffaugment", 8, 2, 7), noise.uniform("augmentation", 8, 2, NUM_NUMBERS)
            real, fake = (
                transformed(augmented(each, names, first[:, own]), second[:, own], probability)
                for own, each in enumerate((images, made))
            )
            difference = plain.discriminator(real) - plain.discriminator(fake)
            loss = softplus(difference if turn == "generator" else -difference).mean()
            descend(plain.get_submodule(turn), loss, 0.1)
    torch.testing.assert_close(trained.state_dict(), plain.state_dict(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_generated_images_shared_by_both_steps_are_augmented_with_new_numbers(tiny_gan, random_images, fit, accumulate):
    settings = {"augmentation": Scheduled(0.7), "diffaugment": ("cutout",), "accumulate_gradients": accumulate}
    gan, seen = tiny_gan("dcgan", **settings), []
    original = gan.augmentations.apply
    gan.augmentations.apply = lambda batch, *rest: seen.append(batch) or original(batch, *rest)
    fit(gan, random_images(batch_size=4), max_steps=1)
    steps = [seen[:accumulate], seen[accumulate:]]
    for name, purpose, columns in (("augmentation", "augmentation", NUM_NUMBERS), ("diffaugment", "diffaugment", 2)):
        for batches, key in zip(steps, [("discriminator", 0, 0), ("generator", 0)], strict=True):
            noise = Noise(torch.Generator(), (gan.seed, *key), microbatches=accumulate)
            expected = noise.uniform(purpose, 4 * accumulate, 2, columns)
            assert torch.equal(torch.cat([batch[name] for batch in batches]), expected)
    assert torch.equal(*(torch.cat([batch["latents"] for batch in batches]) for batches in steps))


def test_an_adaptive_probability_by_hand():
    settings = Adaptive(target=0.5, over=100)
    augmentations = Augmentations((), settings)

    def after(images, *scores):
        augmentations.observe(torch.tensor(scores) > 0)
        return settings.adapted(augmentations.state, images)

    after(32, 1.0, 2.0, -1.0)
    assert after(32, 3.0).tolist() == [0, 0, 0], "mean sign (1 + 1 - 1 + 1) / 4 = target"
    assert augmentations.state.tolist() == [0, 2, 4]
    augmentations.state = after(32, 1.0, 1.0, 1.0, 1.0)
    assert augmentations.state.tolist() == [pytest.approx(0.32), 0, 0]
    augmentations.state = after(20, -1.0, -1.0)
    assert augmentations.state.tolist() == [pytest.approx(0.12), 0, 0]
    assert after(20, -1.0)[0] == 0, "never below 0"


@pytest.mark.parametrize(("bias", "total"), [(0.4, -8), (0.6, 8)])
def test_the_probability_follows_the_threshold_of_the_scores(random_images, fit, bias, total):
    class Least(LinearGAN):
        def classified_as_real(self, name, scores):
            return scores > 0.5

    module = Least(**SMALL, augmentation=Adaptive(over=64))
    module.discriminator[-1].weight.data.zero_()
    module.discriminator[-1].bias.data.fill_(bias)  # every score has this value
    fit(module, random_images(), max_steps=1)
    assert module.augmentations.state.tolist() == [0, total, 8]


def test_in_a_training_the_probability_follows_the_scores_and_is_in_the_checkpoint(random_images, fit, tmp_path):
    augmentation = Adaptive(over=64)
    module = linear_gan(augmentation=augmentation)
    with torch.no_grad():
        module.discriminator[-1].bias.fill_(9.0)  # every score is positive
    state = module.augmentations.state
    trainer = fit(module, random_images(), max_steps=4)
    assert state is module.augmentations.state, "a CUDA graph would read and write the same memory"
    assert state.tolist() == [0.5, 0, 0], "4 iterations of 8 images, of 64"
    assert trainer.callback_metrics["augmentation/probability"] == 0.5
    trainer.save_checkpoint(tmp_path / "four.ckpt")
    again = LinearGAN.load_from_checkpoint(tmp_path / "four.ckpt")
    assert torch.equal(again.augmentations.state, module.augmentations.state)
    assert again.augmentations.augmenter == augmentation
    fit(module, random_images(), max_steps=2)
    assert module.augmentations.state[2] == 16, "scores of two iterations wait for the next change"


def test_the_mean_over_ranks_decides(random_images, fit):
    module, seen = linear_gan(augmentation=Adaptive(over=64)), []
    others = torch.tensor([0.0, 100.0, 100.0])  # another rank, whose discriminator overfits
    module.mean_over_ranks = lambda state: seen.append(state) or (state + others) / 2
    fit(module, random_images(), max_steps=4)
    assert len(seen) == 1
    assert module.augmentations.state[0] == 0.5


def test_penalties_are_differentiated_through_the_augmentation(random_images, fit, monkeypatch):
    """The penalty at the images before their augmentation, against a plain double backward."""
    settings = {"r1_gamma": 0.7, "share_scores": True, "augmentation": Scheduled(0.9)}
    module, plain, seen = linear_gan(**settings), linear_gan(**settings), []
    terms = TrainingStep.discriminator_terms

    def noted(step, batch):
        seen.append((batch, terms(step, batch)))
        return seen[-1][1]

    monkeypatch.setattr(TrainingStep, "discriminator_terms", noted)
    fit(module, random_images(), max_steps=1)
    batch, found = seen[0]
    images = batch["image"].clone().requires_grad_()
    shown = transformed(images, batch["augmentation"][:, 0], 0.9)
    (slope,) = torch.autograd.grad(plain.discriminator(shown).sum(), images)
    expected = 0.7 * slope.flatten(1).square().sum(1).mean() / 2
    torch.testing.assert_close(found["discriminator"][1], expected, rtol=1e-5, atol=1e-7)


def test_refusals(tiny_gan, random_images, fit):
    with pytest.raises(RefusedInput, match=r"strength=.* must lie in \[0, 1\]"):
        Scheduled(LinearSchedule(0.0, 1.5))
    with pytest.raises(RefusedInput, match=r"target=1\.0"):
        Adaptive(target=1.0)
    for settings in ({"augmentation": Scheduled()}, {"diffaugment": ("cutout",)}):
        with pytest.raises(RefusedInput, match="its L1 loss compares images that are not augmented"):
            tiny_gan("pix2pix", **settings)
    module = linear_gan(augmentation=Adaptive())
    module.bare = True
    with pytest.raises(RefusedInput, match="an adaptive augmentation needs the scores of discriminator"):
        fit(module, random_images(), max_steps=1)


@pytest.mark.parametrize(
    ("name", "shared", "augmentation"),
    [("d2gan", False, Adaptive()), ("d2gan", True, Scheduled()), ("r3gan", True, Adaptive())],
)
def test_gans_train_with_it_and_with_microbatches(tiny_gan, random_images, fit, name, shared, augmentation):
    settings = {"accumulate_gradients": 2, "augmentation": augmentation, "r1_gamma": 1.0}
    module = tiny_gan(name, share_scores=shared, **settings)
    fit(module, random_images(batch_size=4), max_steps=4)
    assert all(parameter.isfinite().all() for parameter in module.parameters())
