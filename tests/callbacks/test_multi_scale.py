"""A discriminator that returns several scores trains with every callback, penalty and augmentation."""

import pytest
import torch
from torch import nn
from torch.nn.functional import avg_pool2d, softplus

from lit_gans.callbacks import EMA, IterationProgressBar, RunCheckpoint, Samples, StopOnPlateau, Throughput, Watch
from lit_gans.common.errors import RefusedInput
from lit_gans.training.augmentation import Adaptive
from lit_gans.training.losses import Scored, tensors_of
from lit_gans.training.module import AdversarialModule
from lit_gans.training.penalties import r1_penalty, zero_centered_penalty


class TwoScales(nn.Module):
    """A multi-scale discriminator, whose scores are nested."""

    def __init__(self, structure):
        super().__init__()
        self.fine, self.coarse = nn.Conv2d(1, 2, 4, 2), nn.Conv2d(1, 1, 4, 2)
        self.structure = structure

    def forward(self, images):
        return self.structure(self.fine(images), self.coarse(avg_pool2d(images, 2)))


class MultiScaleGAN(AdversarialModule):
    """A GAN from outside whose discriminator returns several tensors."""

    structure = staticmethod(lambda fine, coarse: {"fine": [fine], "coarse": (coarse,)})

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.building():
            self.generator = nn.Sequential(nn.Linear(6, 256), nn.Tanh(), nn.Unflatten(1, (1, 16, 16)))
            self.discriminator = TwoScales(self.structure)

    def discriminator_losses(self, real, fake, batch):
        real, fake = self.discriminator(real), self.discriminator(fake)
        terms = [softplus(-scores).mean() for scores in tensors_of(real)]
        terms += [softplus(scores).mean() for scores in tensors_of(fake)]
        return {"discriminator": Scored(sum(terms), real, fake)}

    def generator_loss(self, fake, batch):
        return sum(softplus(-scores).mean() for scores in tensors_of(self.discriminator(fake)))


@pytest.mark.runs
@pytest.mark.parametrize(("shares", "threshold"), [(False, True), (True, False)])
def test_a_multi_scale_discriminator_trains_with_every_default_callback(random_images, fit, shares, threshold):
    class GAN(MultiScaleGAN):
        def classified_as_real(self, name, scores):
            return super().classified_as_real(name, scores) if threshold else None

    settings = {
        "r1_gamma": 0.1,
        "r2_gamma": 0.1,
        "share_scores": shares,
        "augmentation": Adaptive(target=-0.9, over=2000),
    }
    module = GAN(image_size=16, channels=1, latent_dim=6, **settings)
    callbacks = [
        EMA(),
        Throughput(),
        Samples(num=4),
        Watch(every_n_steps=20),
        StopOnPlateau(),
        RunCheckpoint(),
        IterationProgressBar(),
    ]
    fit(module, random_images(), 40, callbacks=callbacks, enable_checkpointing=True, enable_progress_bar=True)
    assert 0 < module.augmentations.augmenter.probability(module.augmentations.state, module.progress) <= 1


def test_what_is_no_score_is_refused(random_images, fit):
    class GAN(MultiScaleGAN):
        structure = staticmethod(lambda fine, coarse: [fine, None])

    with pytest.raises(RefusedInput, match=r"must return its scores.* but they contain NoneType"):
        fit(GAN(image_size=16, channels=1, latent_dim=6, r1_gamma=0.1), random_images(), 1)


def test_penalties_of_several_scores_are_those_of_their_sum():
    network, images = TwoScales(MultiScaleGAN.structure), torch.randn(3, 1, 16, 16, requires_grad=True)
    summed = TwoScales(lambda fine, coarse: fine.flatten(1).sum(1) + coarse.flatten(1).sum(1))
    summed.load_state_dict(network.state_dict())
    expected = r1_penalty(summed, images)
    torch.testing.assert_close(r1_penalty(network, images), expected)
    torch.testing.assert_close(zero_centered_penalty(images, network(images)), expected)
