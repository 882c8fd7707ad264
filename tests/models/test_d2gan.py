import pytest
import torch
from torch.nn import functional

from lit_gans.common.errors import RefusedInput
from lit_gans.models.d2gan import D2GAN


def test_losses_are_those_of_the_paper(tiny_gan):
    module = tiny_gan("d2gan", alpha=0.3, beta=0.7)
    for name in module.discriminator_names:
        getattr(module, name).eval()
    real, fake = torch.rand(2, 4, 1, 16, 16) * 2 - 1
    one, two = (
        lambda x, net=net: (1 + net(x).double().exp()).log() for net in (module.discriminator_1, module.discriminator_2)
    )
    losses = module.discriminator_losses(real, fake, {})
    expected_1 = -(0.3 * one(real).log()).mean() + one(fake).mean()
    expected_2 = two(real).mean() - (0.7 * two(fake).log()).mean()
    assert losses["discriminator_1"].loss.item() == pytest.approx(expected_1.item(), abs=1e-6)
    assert losses["discriminator_2"].loss.item() == pytest.approx(expected_2.item(), abs=1e-6)
    expected = (-one(fake) + 0.7 * two(fake).log()).mean()
    assert module.generator_loss(fake, {}).item() == pytest.approx(expected.item(), abs=1e-6)


def gaussian(x, mean, std):
    return torch.exp(-(((x - mean) / std) ** 2) / 2) / (std * (2 * torch.pi) ** 0.5)


def test_at_the_optimum_the_discriminators_are_the_density_ratios():
    """Proposition 1, on two Gaussians: D1 = alpha p_data / p_G and D2 = beta p_G / p_data."""
    alpha, beta, (data, made) = 0.5, 0.2, ((0.0, 1.0), (0.5, 1.1))
    module = D2GAN(alpha=alpha, beta=beta, network="mlp", image_size=1, channels=1, discriminator_width=32, seed=1)
    quantiles = torch.special.ndtri((torch.arange(2000).double() + 0.5) / 2000)
    real, fake = (mean + std * quantiles for mean, std in (data, made))
    batch_real, batch_fake = (x.view(-1, 1, 1, 1) for x in (real, fake))
    module.double()
    for name in module.discriminator_names:
        network = getattr(module, name)
        optimizer = torch.optim.LBFGS(
            network.parameters(), max_iter=150, history_size=50, tolerance_change=0, line_search_fn="strong_wolfe"
        )

        def closure(name=name, optimizer=optimizer):
            optimizer.zero_grad()
            loss = module.discriminator_losses(batch_real, batch_fake, {})[name].loss
            loss.backward()
            return loss

        optimizer.step(closure)
    x = torch.linspace(-4, 4, 801, dtype=torch.float64)
    p_data, p_made = gaussian(x, *data), gaussian(x, *made)
    where = (p_data > 0.05 * p_data.max()) & (p_made > 0.05 * p_made.max())
    scores = {name: getattr(module, name)(x.view(-1, 1, 1, 1)).detach() for name in module.discriminator_names}
    for name, optimum in (("discriminator_1", alpha * p_data / p_made), ("discriminator_2", beta * p_made / p_data)):
        error = (functional.softplus(scores[name]) / optimum - 1).abs()[where].mean().item()
        assert error < 0.05, (name, error)


def test_scores_of_likelier_real_images_are_classified_as_real_at_the_optimum():
    module = D2GAN(alpha=0.5, beta=0.2)
    above, below = (torch.tensor([value]).expm1().log() for value in (0.6, 0.1))  # softplus of them is 0.6, 0.1
    assert module.classified_as_real("discriminator_1", above)
    assert not module.classified_as_real("discriminator_1", below)
    assert module.classified_as_real("discriminator_2", below)
    assert not module.classified_as_real("discriminator_2", above)


def test_a_weight_out_of_range_is_refused():
    with pytest.raises(RefusedInput, match=r"beta=1.5 must lie in \(0, 1\]"):
        D2GAN(beta=1.5)
