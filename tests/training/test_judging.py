"""R1 and R2 from the scores of the losses against those with a forward of their own, and against a plain formula."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from lit_gans.common.errors import RefusedInput
from lit_gans.training.adversarial import AdversarialModule
from lit_gans.training.optim import Optimizer
from lit_gans.training.penalties import r1_penalty, zero_centered_penalty
from lit_gans.training.scored import Scored

SMALL = {"image_size": 16, "channels": 1, "latent_dim": 6, "channels_last": False}
PLAIN = dict.fromkeys(("generator_optimizer", "discriminator_optimizer"), Optimizer("SGD", lr=0.1))


class Dense(AdversarialModule):
    """Two small networks, whose discriminator counts its forwards."""

    bare = False

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.forwards = []
        with self.building():
            self.discriminator = nn.Sequential(nn.Flatten(), nn.Linear(256, 8), nn.Softplus(), nn.Linear(8, 1))
            self.generator = nn.Sequential(nn.Linear(6, 256), nn.Tanh(), nn.Unflatten(1, (1, 16, 16)))
        self.discriminator.register_forward_hook(lambda *_: self.forwards.append(1))

    def discriminator_losses(self, real, fake, batch):
        real, fake = self.discriminator(real), self.discriminator(fake)
        loss = functional.softplus(-real).mean() + functional.softplus(fake).mean()
        return {"discriminator": loss if self.bare else Scored(loss, real, fake)}

    def generator_loss(self, fake, batch):
        return functional.softplus(-self.discriminator(fake)).mean()


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
    settings = {**SMALL, **PLAIN, **weights, "r1_every": 2, "accumulate_gradients": accumulate}
    own, shared = Dense(**settings), Dense(**settings, share_scores=True)
    for module in (own, shared):
        fit(module, random_images(batch_size=8 // accumulate), max_steps=3)
    torch.testing.assert_close(own.state_dict(), shared.state_dict(), rtol=1e-5, atol=1e-6)
    assert len(shared.forwards) == 3 * 3 * accumulate, "real, fake, and the generator's step"
    assert len(own.forwards) - len(shared.forwards) == 2 * len(weights) * accumulate, "in iterations 0 and 2"


def test_r1_and_r2_enter_the_gradient_with_their_weights(random_images, fit):
    """One step against the plain formula: loss + gamma_1 / 2 E|grad D(x)|^2 + gamma_2 / 2 E|grad D(G(z))|^2."""
    settings = {**SMALL, **PLAIN, "r1_gamma": 0.7, "r2_gamma": 0.3, "share_scores": True}
    module, plain, seen = Dense(**settings), Dense(**settings), []
    terms = module.discriminator_terms
    module.discriminator_terms = lambda batch: seen.append(batch) or terms(batch)
    fit(module, random_images(), max_steps=1)
    batch, fake = seen[0], plain.generator(seen[0]["latents"]).detach()
    loss = plain.discriminator_losses(batch["image"], fake, batch)["discriminator"].loss
    for images, weight in ((batch["image"], 0.7), (fake, 0.3)):
        loss = loss + weight * r1_penalty(plain.discriminator, images)
    parameters = list(plain.discriminator.parameters())
    with torch.no_grad():
        for parameter, slope in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter -= 0.1 * slope
    torch.testing.assert_close(
        module.discriminator.state_dict(), plain.discriminator.state_dict(), rtol=1e-5, atol=1e-6
    )


def test_a_bare_loss_trains_but_has_no_scores_to_share(random_images, fit):
    scored, bare = (Dense(**SMALL, **PLAIN, r1_gamma=0.7) for _ in range(2))
    bare.bare = True
    for module in (scored, bare):
        fit(module, random_images(), max_steps=2)
    torch.testing.assert_close(scored.state_dict(), bare.state_dict(), rtol=0, atol=0)
    refused = Dense(**SMALL, r1_gamma=1.0, share_scores=True)
    refused.bare = True
    with pytest.raises(RefusedInput, match=r"share_scores=true needs the scores of discriminator.*return.*Scored"):
        fit(refused, random_images(), max_steps=1)
