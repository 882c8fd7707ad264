"""Feature maps are channels-last under every strategy, although FSDP and DeepSpeed make the weights contiguous."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from lit_gans import DCGAN
from lit_gans.strategies.module_networks import make_contiguous

from . import ranks

STRATEGIES = ["auto", "network_ddp", "network_fsdp", "network_deepspeed_stage_2", "network_deepspeed_stage_3"]
SIZES = {"image_size": 16, "channels": 3, "generator_width": 4, "discriminator_width": 4}


def is_channels_last(features):
    return features.is_contiguous(memory_format=torch.channels_last)


def layouts(strategy):
    """Trains a DCGAN, and returns whether maps after convolutions are channels-last, and weights contiguous."""
    gan, maps, weights = DCGAN(**SIZES), {}, []
    for name, layer in gan.named_modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):

            def look(layer, inputs, output, name=name):
                maps[name] = is_channels_last(output)
                weights.append(layer.weight.is_contiguous())

            layer.register_forward_hook(look)
    data = DataLoader(torch.zeros(8, 3, 16, 16, dtype=torch.uint8), batch_size=4)
    ranks.quiet_trainer(strategy=strategy, devices=1, max_steps=2).fit(gan, data)
    return maps, weights


@pytest.mark.ranks
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_maps_of_a_training_are_channels_last(tmp_path, strategy):
    [(maps, weights)] = ranks.run(f"{__name__}.layouts", tmp_path, 1, strategy=strategy)
    assert {name.partition(".")[0] for name in maps} == {"generator", "discriminator"}
    maps.pop("generator.layers.0")  # of latents of 1x1, which have no layout
    assert len(maps) == 4
    assert all(maps.values()), maps
    assert all(weights) == (strategy not in ("auto", "network_ddp"))


def test_a_contiguous_network_computes_the_same():
    gan, latents = DCGAN(**SIZES, seed=1).double(), torch.randn(4, 100, dtype=torch.double)
    before = gan.generator(latents)
    make_contiguous(gan.generator)
    after = gan.generator(latents)
    torch.testing.assert_close(after, before, rtol=1e-12, atol=1e-12)
    assert is_channels_last(after)
    assert all(weight.is_contiguous() for weight in gan.generator.parameters())


def test_a_convolution_that_is_called_by_keyword_or_without_a_batch_still_computes():
    layer = nn.ConvTranspose2d(2, 2, 3, stride=2).to(memory_format=torch.channels_last)
    images = torch.randn(1, 2, 4, 4)
    before = layer(images, [10, 10])
    make_contiguous(layer)
    torch.testing.assert_close(layer(images, [10, 10]), before)
    torch.testing.assert_close(layer(input=images, output_size=[10, 10]), before)
    torch.testing.assert_close(layer(images[0], [10, 10]), before[0])


def test_a_network_that_was_contiguous_stays_so():
    gan = DCGAN(**SIZES, channels_last=False)
    make_contiguous(gan.generator)
    assert gan.generator(torch.randn(4, 100)).is_contiguous()
