"""Distillation by distribution matching with a GAN loss: a student, a fake score network with a classifier on its
features in one optimizer, a frozen teacher, and an average that holds the student. The student trains in each second
iteration; networks are frozen with plain `requires_grad_`.
"""

from copy import deepcopy

import torch
from torch import nn
from torch.nn.functional import mse_loss, softplus

from .example import Example

EVERY = 2


class Score(nn.Module):
    """Denoises, and returns features."""

    def __init__(self):
        super().__init__()
        self.begin = nn.Sequential(nn.Linear(4, 6), nn.SiLU())
        self.end = nn.Linear(6, 4)

    def forward(self, noised):
        features = self.begin(noised)
        return self.end(features), features


class Average(nn.Module):
    """An average of a model that it holds."""

    def __init__(self, model):
        super().__init__()
        self.ema_model = deepcopy(model).requires_grad_(False)
        self.online_model = model

    @torch.no_grad()
    def update(self, strategy):
        for average, parameter in zip(self.ema_model.parameters(), self.online_model.parameters(), strict=True):
            if parameter.shape != average.shape:  # under ZeRO stage 3
                parameter = strategy.unshard(strategy.local_shard(parameter), parameter)
            average.lerp_(parameter, 0.1)


class Distillation(Example):
    def build(self):
        student = nn.Sequential(nn.Linear(3, 6), nn.SiLU(), nn.Linear(6, 4))
        self.average = Average(student)  # before the student, so that its parameters first appear here
        self.student = student
        self.teacher = Score().double().requires_grad_(False).eval()
        self.fake_score, self.classifier = Score(), nn.Linear(6, 1)

    def training_step(self, batch, batch_idx):
        for_student, for_fake = self.optimizers()
        if batch_idx % EVERY == 0:
            self.train_only(self.student)
            self.accumulated(self.student_loss, batch)
            self.step(for_student)
        self.train_only(self.fake_score, self.classifier)
        self.accumulated(self.fake_loss, batch)
        self.step(for_fake)
        self.average.update(self.trainer.strategy)

    def train_only(self, *networks):
        for each in (self.student, self.fake_score, self.classifier):
            each.requires_grad_(each in networks)

    def on_train_batch_end(self, *_):
        self.train_only(self.student, self.fake_score, self.classifier)

    def student_loss(self, real, latents, noise):
        generated = self.student(latents)
        noised = generated + noise
        with torch.no_grad():
            fake = self.fake_score(noised)[0]
            direction = fake - self.teacher(noised.double())[0].to(fake.dtype)
            direction = direction / (generated - fake).abs().mean(dim=1, keepdim=True).clamp_min(0.1)
        matching = mse_loss(generated, (generated - direction).detach()) / 2
        return matching + softplus(-self.classifier(self.fake_score(noised)[1])).mean()

    def fake_loss(self, real, latents, noise):
        with torch.no_grad():
            generated = self.student(latents)
        denoised, features = self.fake_score(generated + noise)
        scores = [self.classifier(each) for each in (self.fake_score(real + noise)[1], features)]
        return mse_loss(denoised, generated) + softplus(-scores[0]).mean() + softplus(scores[1]).mean()

    def configure_optimizers(self):
        fake = self.optimizer(self.fake_score.parameters(), self.classifier.parameters())
        return self.optimizer(self.student.parameters()), fake

    def sample(self, num, generator):
        return tuple(torch.randn(num, size, generator=generator) for size in (4, 3, 4))
