"""R1 and R2 from the scores of the losses against those with a forward of their own, and against a plain formula."""

import pytest
import torch

from lit_gans.common.errors import RefusedInput
from lit_gans.training.penalties import r1_penalty, zero_centered_penalty
from tests.training.linear_gan import descend, linear_gan


def test_penalty_from_scores_is_that_of_the_formula_with_its_gradient():
    torch.manual_seed(0)
    weight, images = torch.randn(12, 6, requires_grad=True), torch.randn(4, 3, 2, 2, requires_grad=True)
    ours = zero_centered_penalty(images, torch.tanh(images.flatten(1) @ weight).sum(1))
    slopes = (1 - torch.tanh(images.detach().flatten(1) @ weight).square()) @ weight.T
    plain = slopes.square().sum(1).mean() / 2
    torch.testing.assert_close(ours, plain)
    gradients = (torch.autograd.grad(penalty, weight)[0] for penalty in (ours, plain))
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weights", [{"r1_gamma": 0.7}, {"r2_gamma": 0.7}, {"r1_gamma": 0.7, "r2_gamma": 0.3}])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_shared_scores_train_as_scores_of_their_own_with_fewer_forwards(random_images, fit, weights, accumulate):
    states, forwards = [], []
    for share_scores in (False, True):
        module, seen = linear_gan(**weights, r1_every=2, accumulate_gradients=accumulate, share_scores=share_scores), []
        module.discriminator.register_forward_hook(lambda *_, seen=seen: seen.append(1))
        fit(module, random_images(batch_size=8 // accumulate), max_steps=3)
        states.append(module.state_dict())
        forwards.append(len(seen))
    torch.testing.assert_close(*states, rtol=1e-5, atol=1e-6)
    own, shared = forwards
    assert shared == 3 * 3 * accumulate, "real, fake, and the generator's step"
    assert own - shared == 2 * len(weights) * accumulate, "in iterations 0 and 2"


def test_r1_and_r2_enter_the_gradient_with_their_weights(random_images, fit):
    """One step against the plain formula: loss + gamma_1 / 2 E|grad D(x)|^2 + gamma_2 / 2 E|grad D(G(z))|^2."""
    module, plain = (linear_gan(r1_gamma=0.7, r2_gamma=0.3, share_scores=True) for _ in range(2))
    seen = []
    terms = module.discriminator_terms
    module.discriminator_terms = lambda batch: seen.append(batch) or terms(batch)
    fit(module, random_images(), max_steps=1)
    batch, fake = seen[0], plain.generator(seen[0]["latents"]).detach()
    loss = plain.discriminator_losses(batch["image"], fake, batch)["discriminator"].loss
    for images, weight in ((batch["image"], 0.7), (fake, 0.3)):
        loss = loss + weight * r1_penalty(plain.discriminator, images)
    descend(plain.discriminator, loss, 0.1)
    torch.testing.assert_close(
        module.discriminator.state_dict(), plain.discriminator.state_dict(), rtol=1e-5, atol=1e-6
    )


def test_a_bare_loss_trains_but_has_no_scores_to_share(random_images, fit):
    scored, bare = (linear_gan(r1_gamma=0.7) for _ in range(2))
    bare.bare = True
    for module in (scored, bare):
        fit(module, random_images(), max_steps=2)
    torch.testing.assert_close(scored.state_dict(), bare.state_dict(), rtol=0, atol=0)
    refused = linear_gan(r1_gamma=1.0, share_scores=True)
    refused.bare = True
    with pytest.raises(RefusedInput, match=r"share_scores=true needs the scores of discriminator.*return.*Scored"):
        fit(refused, random_images(), max_steps=1)
