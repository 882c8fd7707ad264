import pytest
import torch
from torch import nn
from torch.nn.functional import layer_norm, leaky_relu

from lit_gans.common.errors import RefusedInput
from lit_gans.networks.mlp import MLPDiscriminator, MLPGenerator

LABELS = torch.tensor([0, 2, 1])


def dense(network):
    return [layer for layer in network.layers if isinstance(layer, nn.Linear)]


@pytest.mark.parametrize("image_size", [1, 3])
def test_the_generator_is_dense_layers_and_relus(image_size):
    torch.manual_seed(0)
    generator, features = MLPGenerator(4, 2, image_size, 6, depth=3), torch.randn(5, 4)
    ours = generator(features)
    *hidden, last = dense(generator)
    assert [layer.out_features for layer in hidden] == [6, 6, 6]
    for layer in hidden:
        features = (features @ layer.weight.T + layer.bias).clamp(min=0)
    features = (features @ last.weight.T + last.bias).view(5, 2, image_size, image_size)
    torch.testing.assert_close(ours, features.tanh() if image_size > 1 else features)


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_the_discriminator_is_dense_layers_norms_and_leaky_relus(norm):
    torch.manual_seed(0)
    discriminator, images = MLPDiscriminator(2, 3, 6, depth=3, norm=norm), torch.randn(5, 2, 3, 3)
    features = images.flatten(1)
    for layer in dense(discriminator):
        features = features @ layer.weight.T + layer.bias
        features = leaky_relu(layer_norm(features, (6,)) if norm == "layer" else features, 0.2)
    expected = (features @ discriminator.head.weight.T + discriminator.head.bias).squeeze(1)
    torch.testing.assert_close(discriminator(images), expected)


def test_the_class_joins_the_latent_as_an_embedding():
    torch.manual_seed(0)
    generator, latents = MLPGenerator(4, 2, 1, 6, num_classes=3), torch.randn(3, 4)
    conditioned = torch.stack(
        [torch.cat([z, generator.embedding.weight[y]]) for z, y in zip(latents, LABELS, strict=True)]
    )
    torch.testing.assert_close(generator(latents, LABELS), generator.layers(conditioned))
    same = generator(latents[:1].expand(3, -1), LABELS)
    assert len({tuple(point) for point in same.flatten(1).tolist()}) == 3


def test_other_norms_are_refused():
    with pytest.raises(RefusedInput, match="norm=batch: the mlp networks only support norm=none and norm=layer"):
        MLPDiscriminator(2, 1, norm="batch")
