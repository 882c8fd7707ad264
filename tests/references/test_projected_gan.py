"""Projected GAN: both generators, projections, heads, losses and augmentations."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from lit_gans.models.projected_gan import FrozenFeatures
from lit_gans.networks.fastgan import FastGANGenerator
from lit_gans.networks.projected import Head, Projections
from lit_gans.networks.spectral import spectrally_normalized
from lit_gans.training.diffaugment import augmented
from lit_gans.training.losses import critic_generator, hinge_discriminator
from tests.references.conftest import checkout, copy_weights, layers_of, training_norms

CODE, DIFFAUGMENT = "autonomousvision+projected-gan", "mit-han-lab+data-efficient-gans"
TIMM = {"timm": {}}


@pytest.mark.parametrize("lite", [False, True])
def test_both_generators(same, monkeypatch, lite):
    with checkout(CODE, **TIMM) as load:
        module = load("pg_modules.networks_fastgan")
        theirs = module.FastganSynthesis(ngf=16, z_dim=8, img_resolution=256, lite=lite)
        ours = FastGANGenerator(8, 3, 256, width=8, lite=lite, noise=not lite)
        copy_weights(theirs, ours)
        training_norms(theirs, ours)
        weights = [layer.weight for layer in theirs.modules() if type(layer).__name__ == "NoiseInjection"]
        mine = [layer.noise_weight for layer in ours.modules() if getattr(layer, "noise_weight", None) is not None]
        assert len(weights) == len(mine) == len(ours.noise_shapes)
        with torch.no_grad():
            for one, other in zip(mine, weights, strict=True):
                one.copy_(nn.init.normal_(other))
        latents = torch.randn(3, 8)
        noise = [torch.randn(3, *shape) for shape in ours.noise_shapes]
        drawn = iter(noise)
        monkeypatch.setattr(torch, "randn", lambda *shape, **_: next(drawn))
        expected = theirs(latents[:, None], None)
        same("Projected GAN: fastgan_lite" if lite else "Projected GAN: fastgan", ours(latents, noise), expected)


def test_projections_and_heads(same):
    channels, sizes, cout = FrozenFeatures.channels, (56, 28, 14, 7), 8
    with checkout(CODE, **TIMM) as load:
        projector = load("pg_modules.projector")
        scratch = projector._make_scratch_ccm(nn.Module(), channels, cout, expand=True)
        scratch = projector._make_scratch_csm(scratch, scratch.CHANNELS, cout, expand=True)
        ours = Projections(channels, cout)
        of_channels = [getattr(scratch, f"layer{index}_ccm") for index in range(4)]
        of_scales = [getattr(scratch, f"layer{index}_csm") for index in range(4)]
        copy_weights(of_channels, list(ours.of_channels))
        copy_weights([layer for block in of_scales for layer in layers_of(block)], list(ours.of_scales))
        maps = [torch.randn(2, num, size, size) for num, size in zip(channels, sizes, strict=True)]
        mixed = [layer(each) for layer, each in zip(of_channels, maps, strict=True)]
        expected = [of_scales[3](mixed[3])]
        for index in (2, 1, 0):
            expected.insert(0, of_scales[index](expected[0], mixed[index]))
        found = ours(maps)
        same("Projected GAN: projections", found, expected)
        single = load("pg_modules.discriminator").SingleDisc
        widths, scores = [64, 64, 128, 256], []
        for index, (features, start) in enumerate(zip(found, (128, 64, 32, 16), strict=True)):
            features = features.mean(1, keepdim=True) * torch.randn(1, widths[index], 1, 1)
            theirs = single(nc=widths[index], start_sz=start, end_sz=8)
            head = spectrally_normalized(Head(widths[index], *features.shape[2:], [64, 128, 256, 512][index:]))
            copy_weights(theirs, head)
            training_norms(theirs, head)
            scores.append((head(features), theirs(features, None)))
            same("Projected GAN: heads", scores[-1][0], scores[-1][1][:, 0])
        real, fake = [one for one, _ in scores], [one.flip(0) * 0.5 for one, _ in scores]
        ours = torch.stack([hinge_discriminator(*pair) for pair in zip(real, fake, strict=True)]).sum()
        flat = [torch.cat([each.flatten(1) for each in part], 1) for part in (real, fake)]
        loss = discriminator_loss_of(load)
        same("Projected GAN: losses, 4 times theirs", ours, 4 * loss(*flat))
        generator = torch.stack([critic_generator(each) for each in fake]).sum()
        same("Projected GAN: losses, 4 times theirs", generator, 4 * -flat[1].mean())


def discriminator_loss_of(load):
    """Returns a function that computes the discriminator's loss in their step, which reports it."""
    module = load("training.loss")
    reported = {}

    def loss(real, fake):
        step = module.ProjectedGANLoss(None, None, lambda scores, _: scores, None)
        step.run_G = lambda *_, **__: fake.clone().requires_grad_()
        step.run_D = lambda images, *_, **__: images.clone().requires_grad_()
        module.training_stats.report = lambda name, value: reported.update({name: value})
        step.accumulate_gradients("Dmain", real, None, None, None, 1, 0)
        return reported["Loss/D/loss"].detach()

    return loss


@pytest.mark.parametrize(
    ("code", "name", "cutout"),
    [(CODE, "pg_modules.diffaug", "small_cutout"), (DIFFAUGMENT, "DiffAugment_pytorch", "cutout")],
)
def test_diffaugment(same, monkeypatch, code, name, cutout):
    images, numbers = torch.rand(5, 3, 20, 24) * 2 - 1, torch.rand(5, 7)
    columns = iter(numbers.unbind(1))
    with checkout(code, **TIMM) as load:
        module = load(name)

        def uniform(*shape, **_):
            return next(columns).view(shape if len(shape) > 1 else shape[0])

        def whole(low, high, size, **_):
            drawn = (next(columns) * (high - low)).floor().long()
            return (high - 1 - drawn if low < 0 else low + drawn).view(size)  # their shifts are to the left

        patched = SimpleNamespace(**{**vars(torch), "rand": uniform, "randint": whole})
        patched.meshgrid = lambda *grids: torch.meshgrid(*grids, indexing="ij")
        monkeypatch.setattr(module, "torch", patched)
        expected = module.DiffAugment(images, policy="color,translation,cutout")
    found = augmented(images, ("color", "translation", cutout), numbers)
    same("Projected GAN: augmentations" if code == CODE else "DiffAugment", found, expected)
