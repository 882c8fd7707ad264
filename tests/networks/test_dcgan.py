import pytest
import torch
from torch import nn

from lit_gans.models.dcgan import DCGAN
from lit_gans.networks.dcgan import DCGANDiscriminator, DCGANGenerator


def test_the_defaults_are_the_papers():
    module = DCGAN()
    assert module.generator.layers[0].out_channels == 1024
    assert [layer.out_channels for layer in module.generator.layers if hasattr(layer, "out_channels")][1:] == [
        512,
        256,
        128,
        3,
    ]
    weight = module.discriminator.layers[2].weight
    assert weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert module.generator_optimizer.options["betas"] == (0.5, 0.999)
    assert module.generator_optimizer.options["lr"] == 2e-4


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_losses_are_the_papers_on_the_discriminator_s_logits(tiny_gan, smoothing):
    module = tiny_gan(label_smoothing=smoothing)
    module.discriminator.eval()
    real, fake = torch.rand(2, 4, 1, 16, 16) * 2 - 1
    on_real, on_fake = (torch.sigmoid(module.discriminator(images)) for images in (real, fake))
    expected = -((1 - smoothing) * on_real.log() + smoothing * (1 - on_real).log()).mean() - (1 - on_fake).log().mean()
    losses = module.discriminator_losses(real, fake, {})
    assert set(losses) == {"discriminator"}
    torch.testing.assert_close(losses["discriminator"].loss, expected)
    torch.testing.assert_close(module.generator_loss(fake, {}), -on_fake.log().mean())


def test_batch_norm_and_activations_are_where_the_paper_has_them():
    def kinds(network):
        return [type(layer).__name__ for layer in network.layers]

    up, down = ["ConvTranspose2d", "BatchNorm2d", "ReLU"], ["Conv2d", "BatchNorm2d", "LeakyReLU"]
    assert kinds(DCGANGenerator(6, 3, 64, 2)) == up * 4 + ["ConvTranspose2d", "Tanh"]
    discriminator = DCGANDiscriminator(3, 64, 2)
    assert kinds(discriminator) == ["Conv2d", "LeakyReLU"] + down * 3
    assert {layer.negative_slope for layer in discriminator.layers if hasattr(layer, "negative_slope")} == {0.2}


def test_weights_are_drawn_as_in_the_paper_and_biases_begin_at_zero():
    networks = DCGANGenerator(32, 3, 64, 32, bias=True, dense_stem=True), DCGANDiscriminator(3, 64, 32, bias=True)
    for network in networks:
        for name, parameter in network.named_parameters():
            if name.endswith("bias"):
                assert not parameter.any(), name
            elif parameter.dim() == 1:
                assert parameter.mean().item() == pytest.approx(1, abs=0.02), name
                assert parameter.std().item() == pytest.approx(0.02, rel=0.5), name
            else:
                assert parameter.mean().item() == pytest.approx(0, abs=0.003), name
                assert parameter.std().item() == pytest.approx(0.02, rel=0.15), name


def test_the_dense_stem_is_applied_and_no_layer_is_wider_than_eight_times_the_width():
    torch.manual_seed(0)
    generator, latents = DCGANGenerator(6, 1, 16, 2, dense_stem=True).eval(), torch.randn(3, 6)
    expected = generator.layers((latents @ generator.stem.weight.T + generator.stem.bias)[:, :, None, None])
    torch.testing.assert_close(generator(latents), expected)
    assert max(layer.out_channels for layer in DCGANGenerator(6, 3, 256, 2).layers if hasattr(layer, "stride")) == 16
    assert max(layer.out_channels for layer in DCGANDiscriminator(3, 256, 2).layers if hasattr(layer, "stride")) == 16


def test_there_may_be_one_batch_norm_only_and_a_further_convolution_that_halves_the_last_map():
    generator = DCGANGenerator(6, 3, 64, 2, dense_stem=True, single_norm=True)
    norms = [layer for layer in generator.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert [layer.num_features for layer in norms] == [4], "of the maps with 16, 8, 4 and 2 channels"
    assert generator(torch.randn(1, 6)).shape == (1, 3, 64, 64), "one image trains"
    discriminator = DCGANDiscriminator(3, 32, 2, norm="none", top_width=5)
    assert discriminator.head.in_features == 5 * 2 * 2
    assert discriminator(torch.rand(4, 3, 32, 32)).shape == (4,)
