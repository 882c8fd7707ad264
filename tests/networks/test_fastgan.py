import pytest
import torch
from torch.nn import functional

from lit_gans.common.errors import RefusedInput
from lit_gans.networks.fastgan import FastGANGenerator, SkipLayerExcitation
from lit_gans.networks.spectral import SpectralNorm


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (16, [2048, 1024, 512]),
        (64, [2048, 1024, 512, 256, 256]),
        (512, [2048, 1024, 512, 256, 256, 128, 64, 32]),
    ],
)
def test_the_generator_s_maps_are_as_wide_as_the_paper_s(size, expected):
    with torch.device("meta"):
        generator, narrow = FastGANGenerator(256, 3, size), FastGANGenerator(256, 3, size, width=4)
    wide, few = ([layers[-1].norm.num_features // 2 for layers in each.maps] for each in (generator, narrow))
    assert wide == expected
    assert few == [4 * each // expected[-1] for each in expected]


@pytest.mark.parametrize(("lite", "parameters"), [(False, 105_684_175), (True, 79_354_307)])
def test_both_generators_have_the_parameters_of_projected_gan_s_code(lite, parameters):
    with torch.device("meta"):
        generator = FastGANGenerator(256, 3, 256, lite=lite, noise=not lite)
    assert sum(parameter.numel() for parameter in generator.parameters()) == parameters
    assert len(generator.excitations) == 3


def test_the_map_of_1024_pixels_is_not_excited():
    with torch.device("meta"):
        assert len(FastGANGenerator(8, 3, 1024, width=2).excitations) == 4


def test_a_fine_map_is_multiplied_by_what_the_pooled_coarse_map_gives():
    torch.manual_seed(0)
    layer = SkipLayerExcitation(3, 2)
    coarse, fine = torch.randn(5, 3, 8, 8), torch.randn(5, 2, 6, 6)
    _, whole, _, mix, _ = layer.weights
    pooled = coarse.reshape(5, 3, 4, 2, 4, 2).mean((3, 5))
    hidden = torch.einsum("ncij,kcij->nk", pooled, whole.weight)
    hidden = hidden / (1 + torch.exp(-hidden))
    weights = 1 / (1 + torch.exp(-(hidden @ mix.weight[:, :, 0, 0].T)))
    torch.testing.assert_close(layer(coarse, fine), fine * weights[:, :, None, None])


@pytest.mark.parametrize("lite", [False, True])
@pytest.mark.parametrize("size", [16, 128])
def test_generated_images_by_plain_layers(size, lite):
    torch.manual_seed(0)
    generator = FastGANGenerator(5, 3, size, width=2, lite=lite, noise=not lite).double().eval()
    latents = torch.randn(4, 5, dtype=torch.float64)
    noise = [torch.randn(4, *shape, dtype=torch.float64) for shape in generator.noise_shapes]
    drawn = iter(noise)
    excited = {2: 0} if size == 16 else {4: 0, 5: 1}
    maps = []
    for index, layers in enumerate(generator.maps):
        assert len(layers) == (1 if lite or index == 0 else 2)
        for step, layer in enumerate(layers):
            weight = layer.convolution.weight
            if index == 0:
                made = torch.einsum("nz,zkij->nkij", latents / latents.square().mean(1, keepdim=True).sqrt(), weight)
            elif step == 0:
                doubled = maps[-1].repeat_interleave(2, 2).repeat_interleave(2, 3)
                made = functional.conv2d(doubled, weight, padding=1)
            else:
                made = functional.conv2d(made, weight, padding=1)
            if not lite and index > 0:
                torch.nn.init.normal_(layer.noise_weight)
                made = made + layer.noise_weight * next(drawn)
            kept, gate = layer.norm(made).chunk(2, 1)
            made = kept * torch.sigmoid(gate)
        maps.append(generator.excitations[excited[index]](maps[excited[index]], made) if index in excited else made)
    assert next(drawn, None) is None
    assert len(generator.excitations) == len(excited)
    torch.testing.assert_close(generator(latents, noise), generator.to_image(maps[-1]), rtol=1e-6, atol=1e-9)


def test_every_convolution_has_a_spectral_norm():
    with torch.device("meta"):
        generator = FastGANGenerator(5, 3, 16, width=2)
    convolutions = [layer for layer in generator.modules() if isinstance(layer, torch.nn.modules.conv._ConvNd)]
    assert len(convolutions) == 1 + 2 * 2 + 2 + 1
    assert sum(isinstance(layer, SpectralNorm) for layer in generator.modules()) == len(convolutions)


def test_any_gan_may_have_it(tiny_gan, random_images, fit):
    gan = tiny_gan("sngan", network="fastgan", spectral_generator=False)
    assert isinstance(gan.generator, FastGANGenerator)
    fit(gan, random_images(), max_steps=1)
    with pytest.raises(RefusedInput, match="num_classes=10: the fastgan networks have no such option"):
        tiny_gan("dcgan", network="fastgan", num_classes=10)
    with pytest.raises(RefusedInput, match="already has spectral norm"):
        tiny_gan("sngan", network="fastgan", spectral_generator=True)
