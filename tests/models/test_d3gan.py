import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from lit_gans.training.optim import OptimizerConfig


@pytest.fixture
def module(tiny_gan):
    module = tiny_gan("d3gan")
    for name in module.discriminator_names:
        getattr(module, name).eval()
    return module


REAL, FAKE = torch.rand(2, 4, 1, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1


def errors_of(module):
    """The swapped errors, as the study writes them."""
    ones, zeros = torch.ones(4), torch.zeros(4)
    one, two = module.discriminator_1, module.discriminator_2
    return (
        bce(one(REAL), ones) + bce(two(FAKE), zeros),
        bce(two(REAL), ones) + bce(one(FAKE), zeros),
    )


def test_each_discriminator_has_its_own_errors_and_their_sum_is_that_of_the_swapped(module):
    losses = module.discriminator_losses(REAL, FAKE, {})
    for name in module.discriminator_names:
        network = getattr(module, name)
        expected = bce(network(REAL), torch.ones(4)) + bce(network(FAKE), torch.zeros(4))
        torch.testing.assert_close(losses[name].loss, expected)
    torch.testing.assert_close(sum(each.loss for each in losses.values()), sum(errors_of(module)))


@pytest.mark.parametrize("worse", [1, 2])
def test_the_generator_follows_the_discriminator_with_the_larger_error(module, worse):
    with torch.no_grad():  # a discriminator that takes real images for fake
        getattr(module, f"discriminator_{worse}").head.bias.fill_(-3.0)
    losses = module.discriminator_losses(REAL, FAKE, {})
    error_1, error_2 = errors_of(module)
    torch.testing.assert_close(torch.stack([*module._errors])[0], torch.stack([error_1, error_2]))
    assert (error_1 > error_2).item() == (worse == 1)
    fake = FAKE.clone().requires_grad_()
    loss = module.generator_loss(fake, {})
    followed = getattr(module, f"discriminator_{worse}")
    expected = bce(followed(fake), torch.ones(4))
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, fake), torch.autograd.grad(expected, fake))
    assert not any(value.requires_grad for value in module._errors)
    assert losses.keys() == {"discriminator_1", "discriminator_2"}


def test_the_choice_is_made_on_the_errors_of_all_ranks(module):
    with torch.no_grad():
        module.discriminator_1.head.bias.fill_(-3.0)
    module.discriminator_losses(REAL, FAKE, {})
    seen = []
    module.mean_over_ranks = lambda value: seen.append(value) or value.flip(0)  # the others outvote this rank
    torch.testing.assert_close(module.generator_loss(FAKE, {}), bce(module.discriminator_2(FAKE), torch.ones(4)))
    assert len(seen) == 1


def test_accumulated_microbatches_choose_on_the_errors_of_the_full_batch(tiny_gan, random_images, fit):
    module = tiny_gan("d3gan", accumulate_gradients=2, discriminator_optimizer=OptimizerConfig("SGD", lr=1e-9))
    seen = []
    original = module.mean_over_ranks
    module.mean_over_ranks = lambda value: seen.append(value.clone()) or original(value)
    errors = []
    losses = module.discriminator_losses

    def recorded(*given):
        result = losses(*given)
        errors.append(module._errors[-1])
        return result

    module.discriminator_losses = recorded
    fit(module, random_images(batch_size=4), max_steps=2)
    assert len(errors) == 4
    for iteration in (0, 1):
        expected = torch.stack(errors[2 * iteration : 2 * iteration + 2]).mean(0)
        for value in seen[2 * iteration : 2 * iteration + 2]:
            torch.testing.assert_close(value, expected)
