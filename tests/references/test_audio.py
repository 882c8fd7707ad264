"""Losses of vocos and of DAC, with their discriminators, and the multi-period discriminator of vocos."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from lit_gans.networks.features import WithFeatures
from lit_gans.networks.multi_period import MultiPeriod
from lit_gans.training.adversary import Adversary
from tests.references.conftest import checkout, gradients

VOCOS, DAC = "gemelo-ai+vocos", "descriptinc+descript-audio-codec"
SAMPLES = 1200
pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")  # which both use


def stft(waves, n_fft, hop_length):
    window = torch.hann_window(n_fft)
    return torch.stft(waves.flatten(0, -2), n_fft, hop_length, window=window, return_complex=True)


class Spectrogram(nn.Module):
    """The part of torchaudio's class that vocos uses."""

    def __init__(self, n_fft, hop_length, win_length, power):
        super().__init__()
        assert (win_length, power) == (n_fft, None)
        self.settings = n_fft, hop_length

    def forward(self, waves):
        return stft(waves, *self.settings)


class AudioSignal:
    """The part of audiotools' class that DAC's discriminators and losses use."""

    def __init__(self, audio_data, sample_rate=None, stft_params=None):
        self.audio_data, self.params = audio_data, stft_params

    def clone(self):
        return AudioSignal(self.audio_data)

    def detach(self):
        return AudioSignal(self.audio_data.detach())

    def stft(self):
        spectrogram = stft(self.audio_data, self.params.window_length, self.params.hop_length)
        return spectrogram.unflatten(0, self.audio_data.shape[:2])


class Adapted(nn.Module):
    """Their discriminators as one of ours: `split` returns scores and features from what they return."""

    def __init__(self, network, split):
        super().__init__()
        self.network, self.split = network, split

    def forward(self, waves):
        return self.split(self.network, waves)


def waves():
    return torch.randn(2, 1, SAMPLES), torch.randn(2, 1, SAMPLES, requires_grad=True)


def of_vocos(network, waves):
    scores, _, features, _ = network(y=waves[:, 0], y_hat=waves[:, 0])
    return [WithFeatures(*pair) for pair in zip(scores, features, strict=True)]


def of_dac(network, waves):
    return [WithFeatures(layers[-1], layers[:-1]) for layers in network(waves)]


def num_features(discriminator, data):
    return sum(len(each.features) for each in discriminator(data))


def test_the_multi_period_discriminator(same):
    with checkout(VOCOS, vocos={}, torchaudio={}, torchaudio__transforms={"Spectrogram": Spectrogram}) as load:
        theirs = load("vocos.discriminators").MultiPeriodDiscriminator()
    ours = MultiPeriod()
    for mine, other in zip(ours.discriminators, theirs.discriminators, strict=True):
        for to, of in zip([*mine.layers, mine.last], [*other.convs, other.conv_post], strict=True):
            of.weight_g.data.mul_(torch.rand_like(of.weight_g) + 0.5)
            to.parametrizations.weight.original0.data.copy_(of.weight_g)
            to.parametrizations.weight.original1.data.copy_(of.weight_v)
            to.bias.data.copy_(of.bias)
    data, _ = waves()
    for mine, other in zip(ours(data), of_vocos(theirs, data), strict=True):
        same("vocos: multi-period discriminator", mine.scores, other.scores)
        same("vocos: multi-period discriminator", mine.features[1:], other.features)  # theirs omit the first layer


def test_the_losses_of_vocos(same):
    """Their training step's: each kind of discriminator counts as a mean, and those of spectrograms count a tenth."""
    stubs = {"torchaudio": {}, "torchaudio__transforms": {"Spectrogram": Spectrogram}}
    stubs |= {"vocos": {}, "vocos__modules": {"safe_log": torch.log}}
    with checkout(VOCOS, **stubs) as load:
        networks, losses = load("vocos.discriminators"), load("vocos.loss")
    kinds = networks.MultiPeriodDiscriminator((2, 3)), networks.MultiResolutionDiscriminator((64, 32))
    data, output = waves()
    for_generator, for_discriminators, adversaries = 0, 0, []
    for network, factor in zip(kinds, (1.0, 0.1), strict=True):
        real, fake, real_features, fake_features = network(y=data[:, 0], y_hat=output[:, 0])
        for_discriminators += factor * losses.DiscriminatorLoss()(real, fake)[0] / 2
        matching = losses.FeatureMatchingLoss()(real_features, fake_features)
        for_generator += factor * (losses.GeneratorLoss()(fake)[0] + matching) / 2
        adapted, share = Adapted(network, of_vocos), factor / 2
        features = num_features(adapted, data)
        adversary = Adversary(adapted, "clamped_hinge", weight=share, feature_matching=share * features)
        adversaries.append((adversary, share))
    ours = sum(each.loss(output, data) for each, _ in adversaries)
    same("vocos: generator's loss", ours, for_generator[0])
    pair = (torch.autograd.grad(each, output, retain_graph=True) for each in (ours, for_generator))
    same("vocos: generator's loss", *pair)
    ours = sum(share * each.discriminator_loss(data, output) for each, share in adversaries)
    same("vocos: discriminators' loss", ours, for_discriminators[0])
    for network in kinds:
        theirs = [each for each in gradients(for_discriminators, network) if each is not None]
        found = [each for each in gradients(ours, network) if each is not None]
        same("vocos: discriminators' loss", found, theirs)


def test_the_losses_of_dac(same):
    """Their configuration: losses of all discriminators are added, those of features count twice."""
    parameters = type("STFTParams", (SimpleNamespace,), {})
    audio = {"AudioSignal": AudioSignal, "STFTParams": parameters, "ml": SimpleNamespace(BaseModel=nn.Module)}
    with checkout(DAC, dac={}, dac__model={}, dac__nn={}, audiotools=audio) as load:
        network = load("dac.model.discriminator").Discriminator(periods=[2, 7], fft_sizes=[64, 32])
        losses = load("dac.nn.loss").GANLoss(network)
    data, output = waves()
    adapted = Adapted(network, of_dac)
    ours = Adversary(adapted, "least_squares", feature_matching=2.0 * num_features(adapted, data))
    signals = AudioSignal(output), AudioSignal(data)
    adversarial, matching = losses.generator_loss(*signals)
    found, theirs = ours.loss(output, data), adversarial + 2.0 * matching
    same("DAC: generator's loss", found, theirs)
    same("DAC: generator's loss", *(torch.autograd.grad(each, output) for each in (found, theirs)))
    found, theirs = ours.discriminator_loss(data, output), losses.discriminator_loss(*signals)
    same("DAC: discriminators' loss", found, theirs)
    same("DAC: discriminators' loss", gradients(found, network), gradients(theirs, network))
