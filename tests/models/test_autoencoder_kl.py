import pytest
import torch
from jaxtyping import config
from lightning.pytorch.callbacks import LambdaCallback
from torch import nn
from torch.nn import functional

from lit_gans.common.errors import RefusedInput
from lit_gans.data.base import ImageData
from lit_gans.models.autoencoder_kl import AutoencoderKL
from lit_gans.training.optim import OptimizerConfig
from lit_gans.training.step import TrainingStep

START = 2  # the first iteration of the discriminator


@pytest.fixture
def module(tiny_gan):
    """Makes a tiny autoencoder that is in the iteration after its discriminator has started."""

    def make(**settings):
        module = tiny_gan("autoencoder_kl", **{"discriminator_start": 0, **settings})
        return module

    return make


def in_training(module, num=4):
    """Returns a batch as `training_step` has it, with a reconstruction and its graph."""
    image = torch.rand(num, 1, 16, 16) * 2 - 1
    return module.with_fake({"image": image, "input": image, "posterior": torch.randn(num, 4, 8, 8)})


def gradients(loss, network):
    return torch.autograd.grad(loss, [*network.parameters()], retain_graph=True)


class Squares(nn.Module):
    def forward(self, one, other):
        return (one - other).square().mean((1, 2, 3))


@pytest.mark.parametrize("perceptual_weight", [0.0, 0.5])
def test_the_generator_s_gradient_is_that_of_equation_7(module, perceptual_weight):
    module = module(adversarial_weight=0.7, perceptual_weight=perceptual_weight, kl_weight=0.3)
    module._perceptual = (Squares(),)
    batch = in_training(module)
    fake, real = batch["fake"], batch["image"]
    reconstruction = (fake - real).abs().mean() + perceptual_weight * (fake - real).square().mean()
    adversarial = -module.discriminator(fake).mean()
    last = module.generator.last.weight
    norms = [torch.autograd.grad(each, last, retain_graph=True)[0].norm() for each in (reconstruction, adversarial)]
    weight = norms[0] / (norms[1] + 1e-6)
    divergence = 0.3 * batch["bottleneck"].mean() / 16**2
    expected = reconstruction + 0.7 * weight.detach() * adversarial + divergence
    found = module.generator_loss(fake, batch)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients(found, module.generator), gradients(expected, module.generator))
    torch.testing.assert_close(module.terms["adaptive_weight"], weight.detach())
    assert 0.1 < weight < 1e4 / 16**2, "neither vanishing nor limited"


@pytest.mark.parametrize(("factor", "capped"), [(1.0, False), (1e-3, True)])
@pytest.mark.parametrize("quantizer", ["kl", "vq"])
def test_the_weight_is_limited_in_the_unit_of_the_paper_s_reconstruction_loss(module, quantizer, factor, capped):
    """Latent diffusion sums its reconstruction loss over the numbers of an image, VQGAN takes the mean."""
    settings = {"kl_weight": 0.3} if quantizer == "kl" else {"num_codes": 6}
    module = module(quantizer=quantizer, adversarial_weight=0.7, **settings).double()
    with torch.no_grad():
        module.discriminator.layers[-1].weight.mul_(factor if quantizer == "kl" else factor / 100)
    image = torch.rand(4, 1, 16, 16, dtype=torch.float64) * 2 - 1
    noise = torch.randn(4, 4, 8, 8, dtype=torch.float64)
    batch = module.with_fake({"image": image, "input": image, "posterior": noise})
    fake, last = batch["fake"], module.generator.last.weight
    difference = (fake - image).abs()
    reconstruction = difference.sum((1, 2, 3)).mean() if quantizer == "kl" else difference.mean()
    adversarial = -module.discriminator(fake).mean()
    norms = [torch.autograd.grad(each, last, retain_graph=True)[0].norm() for each in (reconstruction, adversarial)]
    weight = norms[0] / (norms[1] + 1e-6)
    assert (weight > 1e4) == capped
    bottleneck = batch["bottleneck"].mean() * (0.3 if quantizer == "kl" else 1.0)
    theirs = reconstruction + bottleneck + 0.7 * weight.clamp(max=1e4).detach() * adversarial
    unit = 16 * 16 if quantizer == "kl" else 1
    found = module.generator_loss(fake, batch)
    torch.testing.assert_close(found, theirs / unit, rtol=1e-9, atol=0)
    expected = [each / unit for each in gradients(theirs, module.generator)]
    torch.testing.assert_close([*gradients(found, module.generator)], expected, rtol=1e-9, atol=1e-15)


def test_without_an_adaptive_weight_the_losses_are_added(module):
    module = module(adversarial_weight=0.7, adaptive_weight=False, kl_weight=0.0)
    batch = in_training(module)
    fake, real = batch["fake"], batch["image"]
    expected = (fake - real).abs().mean() - 0.7 * module.discriminator(fake).mean()
    torch.testing.assert_close(module.generator_loss(fake, batch), expected)


def test_the_discriminator_has_half_the_hinge_loss(module):
    module = module()
    real, fake = torch.rand(2, 4, 1, 16, 16) * 2 - 1
    scored = module.discriminator_losses(real, fake, {})["discriminator"]
    on_real, on_fake = module.discriminator(real), module.discriminator(fake)
    assert on_real.shape == (4, 2, 2)
    expected = (functional.relu(1 - on_real).mean() + functional.relu(1 + on_fake).mean()) / 2
    torch.testing.assert_close(scored.loss, expected)


def test_the_quantizer_s_loss_is_added_and_its_usage_logged(module):
    module = module(quantizer="vq", num_codes=6, adversarial_weight=0.0)
    batch = in_training(module)
    _, _, loss, codes, _ = module.generator(batch["image"])
    expected = (batch["fake"] - batch["image"]).abs().mean() + loss.mean()
    torch.testing.assert_close(module.generator_loss(batch["fake"], batch), expected)
    usage = codes.flatten().bincount(minlength=6) / codes.numel()
    torch.testing.assert_close(module.terms["codebook/perplexity"], (-(usage * (usage + 1e-12).log()).sum()).exp())


@pytest.mark.parametrize("quantizer", ["fsq", "lfq"])
def test_quantizers_without_learned_vectors_train(tiny_gan, random_images, fit, quantizer):
    settings = {"levels": [4, 3, 3]} if quantizer == "fsq" else {}
    module = tiny_gan("autoencoder_kl", discriminator_start=1, quantizer=quantizer, latent_channels=3, **settings)
    logged = fit(module, random_images(), 2, log_every_n_steps=1).logged_metrics
    num = {"fsq": 36, "lfq": 8}[quantizer]
    assert 1 <= logged["codebook/perplexity"] <= num
    latents, codes = module.encode(torch.rand(2, 1, 16, 16))
    assert latents.abs().max() <= 1
    assert codes.min() >= 0
    assert codes.max() < num


def test_the_loss_of_signs_has_the_entropy_of_all_images(module):
    module = module(quantizer="lfq", latent_channels=3, entropy_weight=0.3, adversarial_weight=0.0).double()
    image = torch.rand(4, 1, 16, 16, dtype=torch.double) * 2 - 1
    batch = module.with_fake({"image": image, "input": image})
    mean = batch["assignment"].mean(0)
    diversity = torch.special.entr(mean.clamp(min=1e-5)).sum()
    expected = (batch["fake"] - image).abs().mean() + batch["bottleneck"].mean() - 0.3 * diversity
    torch.testing.assert_close(module.generator_loss(batch["fake"], batch), expected, rtol=1e-4, atol=0)


def test_levels_that_do_not_fit_the_channels_are_refused(module):
    with pytest.raises(RefusedInput, match=r"levels=\[8, 5\]: quantizer=fsq needs .* latent_channels=4 channels"):
        module(quantizer="fsq", levels=[8, 5])


def by_iteration(module, data, fit, iterations=4, **arguments):
    """Returns copies of the weights at the start and after each iteration, and the trainer."""
    weights = [{name: value.clone() for name, value in module.state_dict().items()}]

    def keep(*_):
        weights.append({name: value.clone() for name, value in module.state_dict().items()})

    trainer = fit(module, data, iterations, callbacks=[LambdaCallback(on_train_batch_end=keep)], **arguments)
    return weights, trainer


def part(weights, network):
    return {name: value for name, value in weights.items() if name.startswith(f"{network}.")}


def test_until_its_start_the_discriminator_is_not_trained_and_has_no_influence(tiny_gan, random_images, fit):
    settings = {
        "discriminator_start": START,
        "discriminator_optimizer": OptimizerConfig("AdamW", lr=1e-2, weight_decay=0.1),
    }
    plain, other = (tiny_gan("autoencoder_kl", **settings) for _ in range(2))
    with torch.no_grad():
        for parameter in other.discriminator.parameters():
            parameter.add_(0.1)
    runs = [by_iteration(module, random_images(), fit)[0] for module in (plain, other)]
    for step in range(5):
        first, then = (part(run[step], "generator") for run in runs)
        same = all(torch.equal(first[name], then[name]) for name in first)
        assert same == (step <= START)
    for run in runs:
        moved = [
            any(not torch.equal(value, run[step][name]) for name, value in part(run[step + 1], "discriminator").items())
            for step in range(4)
        ]
        assert moved == [False] * START + [True] * (4 - START)


def test_the_discriminator_starts_after_a_quarter_of_the_training(tiny_gan, random_images, fit):
    weights, _ = by_iteration(tiny_gan("autoencoder_kl", discriminator_start=None), random_images(), fit, iterations=8)
    same = [
        all(torch.equal(value, weights[0][name]) for name, value in part(each, "discriminator").items())
        for each in weights
    ]
    assert same == [True] * 3 + [False] * 6


@pytest.mark.parametrize("stop", [1, 3])  # before the discriminator has started, and after
@pytest.mark.parametrize("quantizer", ["kl", "vq"])
def test_a_resumed_training_is_the_same_bitwise(tiny_gan, random_images, fit, tmp_path, quantizer, stop):
    def trained(**arguments):
        settings = {"num_codes": 8} if quantizer == "vq" else {}
        module = tiny_gan("autoencoder_kl", discriminator_start=START, quantizer=quantizer, **settings)
        fit(module, random_images(), 4, **arguments)
        return module

    def save(trainer, *_):
        if trainer.global_step == stop:
            trainer.save_checkpoint(tmp_path / "half.ckpt")

    whole = trained(callbacks=[LambdaCallback(on_train_batch_end=save)])
    again = trained(resume=tmp_path / "half.ckpt")
    torch.testing.assert_close(again.state_dict(), whole.state_dict(), rtol=0, atol=0)


def test_a_discriminator_that_would_never_start_is_refused(tiny_gan, random_images, fit):
    with pytest.raises(RefusedInput, match="discriminator_start=3: the discriminator would never be trained in 3"):
        fit(tiny_gan("autoencoder_kl", discriminator_start=3), random_images(), 3)
    with pytest.raises(RefusedInput, match="starts after a quarter of the training, whose length is unknown"):
        fit(tiny_gan("autoencoder_kl", discriminator_start=None), random_images(), -1)
    fit(tiny_gan("autoencoder_kl", discriminator_start=3, adversarial_weight=0.0), random_images(), 1)


def test_a_weight_of_zero_trains_no_discriminator(tiny_gan, random_images, fit):
    module = tiny_gan("autoencoder_kl", discriminator_start=0, adversarial_weight=0.0)
    weights, _ = by_iteration(module, random_images(), fit, iterations=2)
    assert all(torch.equal(value, weights[0][name]) for name, value in part(weights[-1], "discriminator").items())
    assert not torch.equal(weights[-1]["generator.last.weight"], weights[0]["generator.last.weight"])


def test_parts_of_the_loss_are_logged(tiny_gan, random_images, fit):
    module = tiny_gan("autoencoder_kl", discriminator_start=1, quantizer="vq", num_codes=8)
    logged = fit(module, random_images(), 2, log_every_n_steps=1).logged_metrics
    parts = {"loss/l1", "loss/bottleneck", "loss/adversarial", "adaptive_weight", "codebook/perplexity"}
    assert parts | {"loss/generator", "loss/discriminator"} <= logged.keys()
    assert 1 <= logged["codebook/perplexity"] <= 8


def test_the_perceptual_network_is_frozen_and_not_part_of_checkpoints(tiny_gan, random_images, fit):
    module = tiny_gan("autoencoder_kl", perceptual="efficientnet_lite0")
    trainer = fit(module, random_images(), 1, log_every_n_steps=1)
    assert 0 < trainer.logged_metrics["loss/perceptual"] <= 4
    assert {name.partition(".")[0] for name in module.state_dict()} == {"generator", "discriminator"}
    assert not any(parameter.requires_grad for parameter in module._perceptual[0].parameters())


def test_without_lightning_the_perceptual_network_is_loaded_and_the_length_is_needed(tiny_gan, random_images):
    module = tiny_gan("autoencoder_kl", perceptual="efficientnet_lite0", discriminator_start=None)
    with pytest.raises(RefusedInput, match=r"whose length is unknown: .* new_backend\(num_iterations=NUMBER\)"):
        TrainingStep(module, module.new_backend())
    TrainingStep(module, module.new_backend(8))(random_images().dataset[torch.arange(2)], 0)
    assert module.terms["loss/perceptual"] > 0


def test_the_perceptual_network_is_no_extractor(tiny_gan):
    assert tiny_gan("autoencoder_kl", perceptual="efficientnet_lite0").trains_against == ("efficientnet_lite0",)
    for settings in ({"perceptual": "none"}, {"perceptual": "efficientnet_lite0", "perceptual_weight": 0.0}):
        assert tiny_gan("autoencoder_kl", **settings).trains_against == ()


def test_latents_are_encoded_and_decoded(module):
    module, pictures = module(), torch.rand(3, 1, 16, 16)
    latents, codes = module.encode(pictures)
    assert latents.shape == (3, 4, 8, 8)
    assert codes is None
    assert torch.equal(module.decode_latents(latents), module.translate(pictures))
    quantized = AutoencoderKL(quantizer="vq", image_size=32, generator_width=4, num_codes=5, multipliers=(1, 1))
    latents, codes = quantized.encode(torch.rand(2, 3, 32, 32))
    torch.testing.assert_close(latents, quantized.generator.bottleneck.vectors[codes].movedim(-1, 1))


def test_images_of_any_size_are_reconstructed_like_crops_of_padded_images(module):
    module, whole = module(), torch.rand(2, 1, 18, 20)
    reflected = functional.pad(whole[..., :17, :19], (0, 1, 0, 1), mode="reflect")
    assert torch.equal(module.translate(whole[..., :17, :19]), module.translate(reflected)[..., :17, :19])


def test_training_draws_from_the_posterior_and_samples_are_its_means(module):
    module = module()
    batch = in_training(module)
    again = module.with_fake({**batch, "posterior": batch["posterior"] + 1})
    assert not torch.equal(batch["fake"], again["fake"])
    assert torch.equal(module.generate(module.generator, batch), module.generator(batch["image"])[0])


class Ramp(ImageData):
    """Images whose brightness is their number."""

    def load(self):
        return torch.arange(100, dtype=torch.uint8)[:, None, None, None].expand(100, 1, 16, 16), torch.zeros(100).long()


def test_reconstruction_fid_compares_with_images_of_the_training_and_grids_show_held_out_ones(module, random_images):
    module, data = module(), random_images()
    numbers = module.sampling_inputs(10, 0, Ramp(image_size=16)).add(1).mul(127.5).mean((1, 2, 3)).round()
    assert numbers.tolist() == list(range(0, 100, 10))
    images, columns = module.sample_grid(8, 0, data)
    assert (len(images), columns) == (6, 3)
    torch.testing.assert_close(images[:3], data.held_out["image"][[0, 16, 32]] / 255)
    torch.testing.assert_close(images[3:], module.translate(images[:3]))
    assert len(module.held_out(Ramp(image_size=16))["image"]) > 0


def test_images_of_another_kind_are_refused(module):
    module = module()
    with pytest.raises(RefusedInput, match=r"images of shape \(3, 16, 16\), but the model expects \(1, 16, 16\)"):
        module.refuse_batch({"image": torch.zeros(2, 3, 16, 16)})
    module.refuse_batch({"image": torch.zeros(2, 1, 20, 16)})
    with pytest.raises(RefusedInput, match="set input=FOLDER, or call translate"):
        module.sampling_inputs(4, 0, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"blocks": 0},
        {"kl_weight": -1.0},
        {"discriminator_start": -1},
        {"legacy": True, "quantizer": "kl"},
        {"num_codes": 8},
        {"levels": [4, 3]},
        {"commitment_weight": 1.0},
        {"entropy_weight": 1.0, "quantizer": "vq"},
        {"kl_weight": 1e-5, "quantizer": "vq"},
    ],
)
def test_settings_out_of_range_are_refused(tiny_gan, wrong):
    with pytest.raises(RefusedInput, match=next(iter(wrong))):
        tiny_gan("autoencoder_kl", **wrong)


def test_other_images_and_latents_are_neither_encoded_nor_decoded(module, monkeypatch):
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # as it is for users
    module = module()
    with pytest.raises(RefusedInput, match=r"a float tensor .* but got torch\.uint8"):
        module.encode(torch.zeros(2, 1, 16, 16, dtype=torch.uint8))
    with pytest.raises(RefusedInput, match=r"got images of shape \(3, 16, 16\).*set channels=3"):
        module.encode(torch.zeros(2, 3, 16, 16))
    for latents in (torch.zeros(2, 8, 4, 4), torch.zeros(4, 4, 4)):
        with pytest.raises(RefusedInput, match=r"the latents have the shape .* expects \(n, 4, height, width\)"):
            module.decode_latents(latents)
