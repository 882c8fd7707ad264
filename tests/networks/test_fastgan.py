import pytest
import torch
from torch.nn import functional

from lit_gans.common.errors import RefusedInput
from lit_gans.networks.fastgan import FastGANGenerator, SkipLayerExcitation


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (16, [1024, 512, 256]),
        (64, [1024, 512, 256, 128, 128]),
        (512, [1024, 512, 256, 128, 128, 64, 32, 16]),
    ],
)
def test_the_generator_s_maps_are_as_wide_as_the_paper_s(size, expected):
    with torch.device("meta"):
        generator, narrow = FastGANGenerator(256, 3, size), FastGANGenerator(256, 3, size, width=4)
    assert [layers[1].num_features // 2 for layers in generator.maps] == expected
    assert [layers[1].num_features // 2 for layers in narrow.maps] == [4 * each // expected[-1] for each in expected]


def test_a_fine_map_is_multiplied_by_what_the_pooled_coarse_map_gives():
    torch.manual_seed(0)
    layer = SkipLayerExcitation(3, 2)
    coarse, fine = torch.randn(5, 3, 8, 8), torch.randn(5, 2, 6, 6)
    _, whole, _, mix, _ = layer.weights
    pooled = coarse.reshape(5, 3, 4, 2, 4, 2).mean((3, 5))
    hidden = torch.einsum("ncij,kcij->nk", pooled, whole.weight) + whole.bias
    hidden = torch.where(hidden > 0, hidden, 0.1 * hidden)
    weights = 1 / (1 + torch.exp(-(hidden @ mix.weight[:, :, 0, 0].T + mix.bias)))
    torch.testing.assert_close(layer(coarse, fine), fine * weights[:, :, None, None])


@pytest.mark.parametrize("size", [16, 128])
def test_generated_images_by_plain_layers(size):
    torch.manual_seed(0)
    generator, latents = FastGANGenerator(5, 3, size, width=2).eval(), torch.randn(4, 5)
    excited = {2: 0} if size == 16 else {4: 0, 5: 1}
    maps = []
    for index, (convolution, norm, _) in enumerate(generator.maps):
        if index == 0:
            made = torch.einsum("nz,zkij->nkij", latents, convolution.weight)
        else:
            doubled = maps[-1].repeat_interleave(2, 2).repeat_interleave(2, 3)
            made = functional.conv2d(doubled, convolution.weight, convolution.bias, padding=1)
        kept, gate = norm(made).chunk(2, 1)
        made = kept * torch.sigmoid(gate)
        maps.append(generator.excitations[excited[index]](maps[excited[index]], made) if index in excited else made)
    assert len(generator.excitations) == len(excited)
    torch.testing.assert_close(generator(latents), torch.tanh(generator.to_image[0](maps[-1])), rtol=1e-4, atol=1e-5)


def test_any_gan_may_have_it(tiny_gan, random_images, fit):
    gan = tiny_gan("sngan", network="fastgan")
    assert isinstance(gan.generator, FastGANGenerator)
    fit(gan, random_images(), max_steps=1)
    with pytest.raises(RefusedInput, match="num_classes=10: the fastgan networks have no such option"):
        tiny_gan("dcgan", network="fastgan", num_classes=10)
