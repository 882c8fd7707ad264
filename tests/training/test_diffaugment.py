"""DiffAugment against loops over single images, and in the training step on real and fake alike."""

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import Noise
from lit_gans.training.diffaugment import augmented, color, cutout, translation
from tests.training.linear_gan import PLAIN, LinearGAN, descend

DRAWN = torch.Generator().manual_seed(0)
IMAGES = torch.rand(40, 3, 16, 24, generator=DRAWN) * 2 - 1
NUMBERS = torch.rand(40, 3, generator=DRAWN)


def test_color_one_image_at_a_time():
    for image, (brightness, saturation, contrast), ours in zip(
        IMAGES.double().numpy(), NUMBERS.tolist(), color(IMAGES, NUMBERS), strict=True
    ):
        image = image + brightness - 0.5
        image = image * 2 * saturation + image.mean(0) * (1 - 2 * saturation)
        image = image * (contrast + 0.5) + image.mean() * (0.5 - contrast)
        assert np.abs(image - ours.numpy()).max() < 1e-5


def test_translation_is_by_whole_pixels_and_reaches_an_eighth_each_way():
    shifts = set()
    numbers = NUMBERS[:, :2]
    for image, (down, right), ours in zip(IMAGES, numbers.tolist(), translation(IMAGES, numbers), strict=True):
        down, right = int(down * 5) - 2, int(right * 7) - 3
        padded = np.pad(image.numpy(), ((0, 0), (9, 9), (9, 9)))
        assert np.array_equal(padded[:, 9 - down : 25 - down, 9 - right : 33 - right], ours.numpy())
        shifts.add(down)
    assert shifts == {-2, -1, 0, 1, 2}


def test_cutout_hides_a_square_of_half_the_size_with_its_center_in_the_image():
    hidden = cutout(torch.ones(2000, 1, 16, 16), torch.rand(2000, 2, generator=DRAWN))[:, 0] == 0
    rows, columns = hidden.any(2).sum(1), hidden.any(1).sum(1)
    assert torch.equal(hidden.sum((1, 2)), rows * columns), "a rectangle"
    assert (rows.min(), rows.max()) == (4, 8)
    assert (columns.min(), columns.max()) == (4, 8)
    share = hidden.float().mean(0)
    assert torch.allclose(share, share.flip(0), atol=0.05)


@pytest.mark.parametrize("name", ["color", "translation", "cutout"])
def test_gradients_pass_through(name):
    images, numbers = IMAGES[:2, :, :5, :5].double().requires_grad_(), NUMBERS[:2].double()
    numbers = numbers[:, : 3 if name == "color" else 2]
    assert torch.autograd.gradcheck(lambda x: augmented(x, (name,), numbers), images)


class Seeing(LinearGAN):
    """Keeps what its discriminator sees."""

    def generate(self, generator, batch):
        self.made = super().generate(generator, batch)
        return self.made

    def discriminator_losses(self, real, fake, batch):
        self.seen = (real.detach(), fake.detach(), batch)
        return super().discriminator_losses(real, fake, batch)

    def generator_loss(self, fake, batch):
        self.generator_saw = (fake.detach(), self.made.detach(), batch)
        return super().generator_loss(fake, batch)


def seeing(fit, data, **settings):
    module = Seeing(image_size=16, channels=1, latent_dim=6, **settings)
    fit(module, data, max_steps=1)
    return module


def test_discriminators_see_real_and_fake_augmented_and_differently(random_images, fit):
    names = ("color", "translation", "cutout")
    module = seeing(fit, random_images(), diffaugment=names)
    plain = seeing(fit, random_images())
    real, fake, batch = module.seen
    real_before, fake_before, _ = plain.seen
    numbers = batch["diffaugment"]
    assert numbers.shape == (8, 2, 7)
    assert torch.equal(real, augmented(real_before, names, numbers[:, 0]))
    assert torch.equal(fake, augmented(fake_before, names, numbers[:, 1]))
    assert not torch.equal(numbers[:, 0], numbers[:, 1])
    fake, made, batch = module.generator_saw
    assert torch.equal(fake, augmented(made, names, batch["diffaugment"][:, 1]))
    assert not torch.equal(batch["diffaugment"], numbers)


class Relativistic(LinearGAN):
    """Both losses compare real and generated images in pairs (Jolicoeur-Martineau 2019)."""

    def discriminator_losses(self, real, fake, batch):
        return {"discriminator": softplus(self.discriminator(fake) - self.discriminator(real)).mean()}

    def generator_loss(self, fake, batch):
        return softplus(self.discriminator(batch["image"]) - self.discriminator(fake)).mean()


def test_a_relativistic_gan_trains_as_a_plain_loop_that_augments_all_images_in_every_turn(random_images, fit):
    names = ("color", "translation", "cutout")
    settings = {"image_size": 16, "channels": 1, "latent_dim": 6, "diffaugment": names, **PLAIN}
    trained, plain = (Relativistic(**settings) for _ in range(2))
    data = random_images(batch_size=8)
    fit(trained, data, max_steps=3)
    for iteration, step in enumerate(list(data._sampler())[:3]):
        images = data.dataset.images[step].float() / 127.5 - 1
        for turn, key in (("discriminator", (iteration, 0)), ("generator", (iteration,))):
            noise = Noise(torch.Generator(), (0, turn, *key))
            made = plain.generator(noise.normal("latents", 8, 6))
            numbers = noise.uniform("diffaugment", 8, 2, 7)
            real, fake = augmented(images, names, numbers[:, 0]), augmented(made, names, numbers[:, 1])
            difference = plain.discriminator(real) - plain.discriminator(fake)
            loss = softplus(difference if turn == "generator" else -difference).mean()
            descend(plain.get_submodule(turn), loss, 0.1)
    torch.testing.assert_close(trained.state_dict(), plain.state_dict(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["dcgan", "sngan", "wgan_gp", "d2gan", "d3gan"])
def test_every_gan_of_images_trains_with_it_and_with_microbatches(tiny_gan, random_images, fit, name):
    settings = {"accumulate_gradients": 2, "diffaugment": ("translation", "cutout")}
    trained, plain = tiny_gan(name, **settings), tiny_gan(name, accumulate_gradients=2)
    for module in (trained, plain):
        fit(module, random_images(batch_size=4 if module.n_critic == 1 else 1), max_steps=2)
    theirs = plain.generator.state_dict()
    assert any(not torch.equal(value, theirs[key]) for key, value in trained.generator.state_dict().items())


def test_pix2pix_refuses_it(tiny_gan):
    with pytest.raises(RefusedInput, match=r"diffaugment: .*L1"):
        tiny_gan("pix2pix", diffaugment=("cutout",))
