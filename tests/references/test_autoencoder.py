"""The autoencoder: decoder, both bottlenecks, and the losses of latent diffusion and VQGAN."""

import pytest
import torch
from torch import nn

from lit_gans.models.autoencoder_kl import AutoencoderKL
from lit_gans.networks.autoencoder import Autoencoder
from lit_gans.networks.bottlenecks import DiagonalGaussian, VectorQuantizer
from lit_gans.training import adaptive_weight
from tests.references.conftest import checkout, copy_weights, gradients, layers_of, training_norms

LDM, TAMING = "CompVis+latent-diffusion", "CompVis+taming-transformers"


def test_the_decoder(same):
    with checkout(TAMING) as load:
        settings = {"ch": 128, "out_ch": 3, "ch_mult": (1, 2, 4), "num_res_blocks": 1, "attn_resolutions": []}
        settings |= {"in_channels": 3, "resolution": 32, "z_channels": 4}
        theirs = load("taming.modules.diffusionmodules.model").Decoder(**settings)
        ours = Autoencoder(3, 32, 4, DiagonalGaussian(), 8, 128, (1, 2, 4), 1)
        parts = [theirs.conv_in, theirs.mid.block_1]
        after = [theirs.mid.block_2, *list(theirs.up)[::-1], theirs.norm_out, theirs.conv_out]
        decoder = list(ours.decoder.children())
        attention = next(index for index, each in enumerate(decoder) if type(each).__name__ == "Attention")
        for those, mine in ((parts, decoder[:attention]), (after, [*decoder[attention + 1 :], ours.last])):
            copy_weights(*([layer for part in side for layer in layers_of(part)] for side in (those, mine)))
        with torch.no_grad():
            own, other = decoder[attention], theirs.mid.attn_1
            for each in (other.q, other.k, other.v, other.proj_out):
                nn.init.normal_(each.bias)
            own.project.weight.copy_(torch.cat([each.weight for each in (other.q, other.k, other.v)]))
            own.project.bias.copy_(torch.cat([each.bias for each in (other.q, other.k, other.v)]))
            own.out.load_state_dict(other.proj_out.state_dict())
            own.norm.load_state_dict(other.norm.state_dict())
        latents = torch.randn(2, 4, 8, 8)
        same("Autoencoder: decoder", ours.decode(latents), theirs(latents))


def test_the_bottlenecks(same, monkeypatch):
    moments, noise = torch.randn(3, 8, 4, 4), torch.randn(3, 4, 4, 4)
    with checkout(LDM) as load:
        theirs = load("ldm.modules.distributions.distributions").DiagonalGaussianDistribution(moments)
        monkeypatch.setattr(torch, "randn", lambda *_: noise)
        latents, divergence, *_ = DiagonalGaussian()(moments, noise)
        same("Autoencoder: Gaussian", [latents, divergence], [theirs.sample(), theirs.kl()])
        monkeypatch.undo()
    with checkout(TAMING) as load:
        quantize = load("taming.modules.vqvae.quantize").VectorQuantizer2
        for legacy in (False, True):
            theirs, ours = quantize(7, 4, 0.3, legacy=legacy), VectorQuantizer(7, 4, 0.3, legacy)
            nn.init.normal_(theirs.embedding.weight)
            ours.vectors.data.copy_(theirs.embedding.weight)
            encoded = torch.randn(3, 4, 5, 5, requires_grad=True)
            (latents, loss, *_), (others, other, _) = ours(encoded), theirs(encoded)
            same("VQGAN: quantizer", [latents, loss.mean()], [others, other])
            found = torch.autograd.grad(loss.mean(), (encoded, ours.vectors))
            same("VQGAN: quantizer", found, torch.autograd.grad(other, (encoded, theirs.embedding.weight)))


@pytest.mark.parametrize("factor", [1.0, 1e-4])  # of the discriminator's last layer, so that the weight is limited
@pytest.mark.parametrize("quantizer", ["kl", "vq"])
def test_losses_with_the_adaptive_weight(same, monkeypatch, quantizer, factor):
    monkeypatch.setattr(adaptive_weight, "_DELTA", 1e-4)  # theirs; ours is the paper's
    with checkout(TAMING) as of_taming, checkout(LDM) as load:
        if quantizer == "kl":
            module, name = load("ldm.modules.losses.contperceptual"), "LPIPSWithDiscriminator"
        else:
            module, name = of_taming("taming.modules.losses.vqperceptual"), "VQLPIPSWithDiscriminator"
        monkeypatch.setattr(module, "LPIPS", nn.Identity)
        theirs = getattr(module, name)(disc_start=0, disc_weight=0.7, perceptual_weight=0.0, disc_num_layers=2)
        settings = {"multipliers": (1, 2), "blocks": 1, "perceptual": "none", "patch_depth": 2, "norm": "batch"}
        settings |= {"quantizer": quantizer, "adversarial_weight": 0.7}
        settings |= {"kl_weight": 0.3} if quantizer == "kl" else {"num_codes": 6}
        settings |= {"channels_last": False, "discriminator_start": 0, "generator_width": 8}
        ours = AutoencoderKL(image_size=16, **settings).double()
        copy_weights(theirs.discriminator, ours.discriminator)
        with torch.no_grad():
            for network in (theirs.discriminator, ours.discriminator):
                layers_of(network)[-1].weight.mul_(factor)
        training_norms(theirs.discriminator, ours.discriminator)
        image = torch.rand(4, 3, 16, 16) * 2 - 1
        batch = ours.with_fake({"image": image, "input": image, "posterior": torch.randn(4, 4, 8, 8)})
        fake, last = batch["fake"], ours.generator.last.weight
        if quantizer == "kl":
            theirs.kl_weight = 0.3
            posterior = type("Posterior", (), {"kl": lambda self: batch["bottleneck"]})()
            unit, bottleneck = 3 * 16 * 16, posterior
        else:
            unit, bottleneck = 1, batch["bottleneck"]
        images = (image, fake)
        given = (*images, bottleneck) if quantizer == "kl" else (bottleneck, *images)
        expected, log = theirs(*given, 0, 1, last_layer=last)
        found = ours.generator_loss(fake, batch)
        label = "Autoencoder: losses" if quantizer == "kl" else "VQGAN: losses"
        same(label, found, expected / unit)
        ratio = [each / unit for each in gradients(expected, ours.generator)]
        same(label, gradients(found, ours.generator), ratio)
        assert (log["train/d_weight"] == 7e3) == (factor < 1 and quantizer == "kl") or quantizer == "vq"
        expected, _ = theirs(*given, 1, 1)
        same(label, ours.discriminator_losses(image, fake.detach(), {})["discriminator"].loss, expected)
