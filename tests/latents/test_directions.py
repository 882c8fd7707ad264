import pytest
import torch
from torch import nn

from lit_gans.common.errors import RefusedInput
from lit_gans.latents.directions import directions


@pytest.fixture
def scaled(tiny_gan):
    """A generator whose first layer stretches the axes of its latents by known factors, in another basis."""

    def make(transposed=False):
        module = tiny_gan("gan")
        basis = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)))[0]
        columns = torch.eye(16, 6) * torch.tensor([5.0, 1.0, 3.0, 2.0, 6.0, 4.0]) @ basis
        if transposed:
            layer = nn.ConvTranspose2d(6, 1, 4)
            layer.weight.data = columns.T.reshape(6, 1, 4, 4)
            module.generator = nn.Sequential(nn.Unflatten(1, (6, 1, 1)), layer)
        else:
            layer = nn.Linear(6, 16)
            layer.weight.data = columns
            module.generator = nn.Sequential(layer, nn.Unflatten(1, (1, 4, 4)))
        return module, basis

    return make


@pytest.mark.parametrize("transposed", [False, True])
def test_finds_the_axes_that_are_stretched_most(scaled, transposed):
    module, basis = scaled(transposed)
    found, values = directions(module, 3)
    assert values.tolist() == pytest.approx([36, 25, 16], rel=1e-5)
    for ours, axis in zip(found, basis[[4, 0, 5]], strict=True):
        assert abs(ours @ axis).item() == pytest.approx(1, abs=1e-5)
        assert ours[ours.abs().argmax()] > 0, "the sign does not depend on the solver"
    assert module.generator.training


@pytest.mark.parametrize(
    ("name", "network"), [("dcgan", "dcgan"), ("sngan", "resnet"), ("gan", "mlp"), ("r3gan", "r3gan")]
)
@pytest.mark.parametrize("num_classes", [0, 10])
def test_every_pair_of_networks_has_directions(tiny_gan, name, network, num_classes):
    module = tiny_gan(name, network=network, num_classes=num_classes)
    found, values = directions(module, 2)
    torch.testing.assert_close(found @ found.T, torch.eye(2), atol=1e-5, rtol=0)
    assert values[0] > values[1] > 0


def test_directions_with_classes_are_those_of_the_latents_alone(tiny_gan):
    module = tiny_gan("gan", num_classes=10, generator_width=16)
    first = next(layer for layer in module.generator.modules() if isinstance(layer, nn.Linear))
    assert first.weight.shape[1] > 6, "an embedding of the class follows the latent"
    _, values = directions(module, 6)
    torch.testing.assert_close(values, torch.linalg.svdvals(first.weight[:, :6].detach()) ** 2)


def test_more_directions_than_there_are_and_none_are_refused(tiny_gan):
    for num in (0, 7):
        with pytest.raises(RefusedInput, match=f"num={num} must be at least 1 and at most latent_dim=6"):
            directions(tiny_gan(), num)
