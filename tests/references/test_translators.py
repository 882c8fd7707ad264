"""pix2pix's and CycleGAN's networks, pool and steps, in the PyTorch code of their authors."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from lit_gans.models.cyclegan import CycleGAN, ImagePool
from lit_gans.networks.cyclegan import ResidualTranslator
from lit_gans.networks.patchgan import PatchGAN
from lit_gans.networks.unet import UNet
from lit_gans.training.optim import OptimizerConfig
from tests.references.conftest import checkout, copy_weights, layers_of

CODE = "taesungp+contrastive-unpaired-translation"
PLAIN = {"no_antialias": True, "no_antialias_up": True}


@pytest.mark.parametrize("norm", ["instance", "batch"])
def test_networks(same, norm):
    with checkout(CODE) as load:
        networks = load("models.networks")
        layer = networks.get_norm_layer(norm)
        theirs = networks.ResnetGenerator(3, 2, 4, norm_layer=layer, n_blocks=2, **PLAIN)
        ours = ResidualTranslator(3, 2, 4, 2, norm)
        copy_weights(theirs, ours)
        images = torch.rand(2, 3, 16, 24) * 2 - 1
        same("CycleGAN: generator", ours(images), theirs(images))
        theirs = networks.NLayerDiscriminator(3, 4, norm_layer=layer, no_antialias=True)
        ours = PatchGAN(0, 3, 64, 4, 3, norm, affine=norm == "batch")
        copy_weights(theirs, ours)
        images = torch.rand(2, 3, 64, 64) * 2 - 1
        same("PatchGAN", ours(images), theirs(images)[:, 0])


def test_the_u_net_of_pix2pix(same):
    with checkout(CODE) as load:
        theirs = load("models.networks").UnetGenerator(3, 3, 6, 4, norm_layer=nn.BatchNorm2d)
        ours = UNet(3, 3, 64, 4, "batch")
        convolutions = [layer for layer in layers_of(theirs) if isinstance(layer, nn.Conv2d)]
        others = [layer for layer in layers_of(theirs) if not isinstance(layer, nn.Conv2d)]
        # their blocks are nested: an encoder from the outermost block on, a decoder from the innermost on
        norms = [layer for layer in others if isinstance(layer, nn.BatchNorm2d)]
        copy_weights(convolutions, [layer for layer in layers_of(ours.encoder) if isinstance(layer, nn.Conv2d)])
        upwards = [layer for layer in layers_of(ours.decoder) if isinstance(layer, nn.ConvTranspose2d)]
        copy_weights([layer for layer in others if isinstance(layer, nn.ConvTranspose2d)], upwards)
        down = [layer for layer in layers_of(ours.encoder) if isinstance(layer, nn.BatchNorm2d)]
        up = [layer for layer in layers_of(ours.decoder) if isinstance(layer, nn.BatchNorm2d)]
        copy_weights(norms, [*down, *up])
        with torch.no_grad():
            for layer in upwards[1:]:  # theirs concatenate the encoder's map first
                layer.weight.copy_(layer.weight.roll(len(layer.weight) // 2, 0))
        images = torch.rand(2, 3, 64, 64) * 2 - 1
        same("pix2pix: U-Net", ours(images), theirs(images))


@pytest.mark.parametrize("identity", [0.5, 0.0])
def test_three_iterations_of_cyclegan(same, fit, tmp_path, identity):
    options = {"isTrain": True, "gpu_ids": [], "checkpoints_dir": str(tmp_path), "name": "run", "preprocess": "none"}
    options |= {"direction": "AtoB", "lambda_A": 10.0, "lambda_B": 10.0, "lambda_identity": identity, "pool_size": 0}
    options |= {"input_nc": 1, "output_nc": 1, "ngf": 4, "netG": "resnet_4blocks", "normG": "instance", "amp": False}
    options |= {"no_dropout": True, "init_type": "normal", "init_gain": 0.02, "ndf": 4, "netD": "n_layers"}
    options |= {"n_layers_D": 2, "normD": "instance", "gan_mode": "lsgan", "lr": 2e-4, "beta1": 0.5, **PLAIN}
    with checkout(CODE, apex={"amp": None}) as load:
        theirs = load("models.cycle_gan_model").CycleGANModel(SimpleNamespace(**options))
        settings = {"generator_width": 4, "discriminator_width": 4, "patch_depth": 2, "blocks": 4, "pool_size": 0}
        adam = OptimizerConfig("Adam", lr=2e-4, betas=(0.5, 0.999))
        settings |= {"generator_optimizer": adam, "discriminator_optimizer": adam}
        settings |= {"identity_weight": identity, "jitter": False, "channels_last": False}
        ours = CycleGAN(image_size=16, channels=1, **settings).double()
        pairs = {"generator.a_to_b": theirs.netG_A, "generator.b_to_a": theirs.netG_B}
        pairs |= {"discriminator_b": theirs.netD_A, "discriminator_a": theirs.netD_B}
        for name, network in pairs.items():
            copy_weights(network, ours.get_submodule(name), redraw=False)
        batches = [
            {"input": torch.rand(2, 1, 16, 16) * 2 - 1, "image": torch.rand(2, 1, 16, 16) * 2 - 1} for _ in "123"
        ]
        for batch in batches:
            theirs.set_input({"A": batch["input"], "B": batch["image"], "A_paths": "", "B_paths": ""})
            theirs.optimize_parameters()
        fit(ours, torch.utils.data.DataLoader(batches, batch_size=None), max_steps=3, precision="64-true")
        for name, network in pairs.items():
            mine = [layer.weight for layer in layers_of(ours.get_submodule(name)) if layer.weight is not None]
            others = [layer.weight for layer in layers_of(network) if layer.weight is not None]
            same("CycleGAN: weights after 3 iterations", mine, others)


def test_the_pool(same, monkeypatch):
    with checkout(CODE) as load:
        module = load("util.image_pool")
        numbers = torch.rand(20, 2)
        drawn = iter(numbers)
        current = []

        def uniform(low, high):
            current[:] = next(drawn).tolist()
            return current[0]

        monkeypatch.setattr(module.random, "uniform", uniform)
        monkeypatch.setattr(module.random, "randint", lambda low, high: int(current[1] * (high + 1)))
        theirs, ours = module.ImagePool(5), ImagePool(5)
        filled = torch.zeros(5, 2)
        for images, own in zip(torch.rand(5, 5, 1, 2, 2), [filled, *numbers.split(5)], strict=True):
            same("CycleGAN: pool", ours.exchange(images, own), theirs.query(images))
