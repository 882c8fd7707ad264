"""Autoencoders of latent diffusion's code and of diffusers: read, equal to theirs, and written."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from lit_gans.checkpoints.diffusers import CONFIG, INDEX, WEIGHTS
from lit_gans.common.errors import RefusedInput
from lit_gans.export.diffusers import save_diffusers
from lit_gans.models.autoencoder_kl import AutoencoderKL
from tests import latent_diffusion

REST = {"perceptual": "none", "discriminator_width": 4, "patch_depth": 1}
LAYOUTS = [(quant, latent_channels) for quant in (True, False) for latent_channels in (4, 16)]


def near(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.fixture
def images():
    return torch.rand(2, 3, 16, 8, dtype=torch.float64) * 2 - 1


@pytest.fixture
def published(tiny_gan, tmp_path):
    """Writes a tiny autoencoder for diffusers, and returns it and its folder."""
    layout = {"asymmetric_padding": True, "groups": 4, "quant_conv": True, "post_quant_conv": True, "channels": 3}
    module = tiny_gan("autoencoder_kl", **layout, scaling_factor=0.3, shift_factor=0.1)
    return module, save_diffusers(module, tmp_path / "vae")


def changed(folder, **entries):
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | entries))


@pytest.mark.parametrize(("quant", "latent_channels"), LAYOUTS)
@pytest.mark.parametrize("attention", [True, False])
def test_the_weights_of_latent_diffusion_compute_what_the_paper_does(
    tmp_path, images, quant, latent_channels, attention, caplog
):
    state = latent_diffusion.weights(quant=quant, latent_channels=latent_channels, attention=attention)
    path = tmp_path / "ae.safetensors"
    save_file(state, path)
    module = in_float64(path)
    assert "does not contain the scaling factor" in caplog.text
    moments = latent_diffusion.encode(state, images)
    mean, log_variance = moments.chunk(2, 1)
    near(module.generator.encode(images)[0], mean)
    noise = torch.randn_like(mean)
    latents = mean + (log_variance / 2).exp() * noise
    near(module.generator(images, noise)[0], latent_diffusion.decode(state, latents))


def in_float64(path):
    """Reads a file in float64, so that its weights are not rounded."""
    torch.set_default_dtype(torch.float64)
    try:
        return AutoencoderKL.from_diffusers(path, image_size=16, **REST)
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_diffusion_model_s_file_has_other_networks_which_are_not_read(tmp_path):
    state = {name: value.float() for name, value in latent_diffusion.weights().items()}
    whole = {f"first_stage_model.{name}": value for name, value in state.items()}
    whole |= {"model.diffusion_model.out.weight": torch.ones(2), "first_stage_model.loss.logvar": torch.ones(1)}
    save_file(whole, tmp_path / "sd.safetensors")
    torch.save({"state_dict": state | {"loss.logvar": torch.ones(1)}, "epoch": 3}, tmp_path / "ae.ckpt")
    torch.save(state, tmp_path / "plain.ckpt")
    found = [
        AutoencoderKL.from_diffusers(tmp_path / name, image_size=16, scaling_factor=0.18215, **REST)
        for name in ("sd.safetensors", "ae.ckpt", "plain.ckpt")
    ]
    for module in found:
        assert module.scaling_factor == 0.18215
        torch.testing.assert_close(module.state_dict(), found[0].state_dict(), rtol=0, atol=0)
    assert torch.equal(found[0].generator.last.weight, state["decoder.conv_out.weight"])


def test_code_in_a_file_is_not_executed(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    torch.save({"state_dict": latent_diffusion.weights(), "callbacks": Evil()}, tmp_path / "ae.ckpt")
    with pytest.raises(RefusedInput, match="only tensors and plain values are read, no code is executed"):
        AutoencoderKL.from_diffusers(tmp_path / "ae.ckpt")
    assert not (tmp_path / "executed").exists()


def test_what_was_written_is_read_bitwise_with_its_settings(published, tmp_path):
    module, folder = published
    again = AutoencoderKL.from_diffusers(folder, **REST)
    state = again.generator.state_dict()
    torch.testing.assert_close(state, module.generator.state_dict(), rtol=0, atol=0)
    assert (again.scaling_factor, again.shift_factor, again.image_size) == (0.3, 0.1, 16)
    save_diffusers(again, tmp_path / "again")
    for name in (WEIGHTS, CONFIG):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_older_versions_of_diffusers_name_the_attention_otherwise(published):
    module, folder = published
    older = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    tensors = load_file(folder / WEIGHTS)
    for new, old in older.items():
        tensors = {name.replace(f".{new}.", f".{old}."): value for name, value in tensors.items()}
    assert any(".query." in name for name in tensors)
    save_file(tensors, folder / WEIGHTS)
    again = AutoencoderKL.from_diffusers(folder, **REST)
    torch.testing.assert_close(again.generator.state_dict(), module.generator.state_dict(), rtol=0, atol=0)


def shard(folder):
    """Splits the weights of a folder over two files, and returns the names of these files."""
    tensors, names = (
        load_file(folder / WEIGHTS),
        [f"{WEIGHTS[:-12]}-0000{number}-of-00002.safetensors" for number in (1, 2)],
    )
    keys = sorted(tensors)
    parts = {names[0]: keys[::2], names[1]: keys[1::2]}
    for name, part in parts.items():
        save_file({key: tensors[key] for key in part}, folder / name)
    index = {"metadata": {}, "weight_map": {key: name for name, part in parts.items() for key in part}}
    (folder / INDEX).write_text(json.dumps(index))
    (folder / WEIGHTS).unlink()
    return names


def test_shards_are_read_together_and_a_missing_one_is_named(published):
    module, folder = published
    names = shard(folder)
    again = AutoencoderKL.from_diffusers(folder, **REST)
    torch.testing.assert_close(again.generator.state_dict(), module.generator.state_dict(), rtol=0, atol=0)
    (folder / names[1]).unlink()
    with pytest.raises(RefusedInput, match=f"{names[1]} of 2 shards is missing, which {INDEX} names: copy all"):
        AutoencoderKL.from_diffusers(folder)
    (folder / INDEX).write_text(json.dumps({"weight_map": {"encoder.conv_in.weight": "../other.safetensors"}}))
    with pytest.raises(RefusedInput, match=r"names \.\./other.safetensors: files must be in the same folder"):
        AutoencoderKL.from_diffusers(folder)
    (folder / INDEX).write_text("{")
    with pytest.raises(RefusedInput, match="cannot be read as the index of a sharded file"):
        AutoencoderKL.from_diffusers(folder)


def test_writing_replaces_shards_which_diffusers_would_read_instead(published):
    module, folder = published
    shard(folder)
    save_diffusers(module, folder)
    assert not (folder / INDEX).exists()
    AutoencoderKL.from_diffusers(folder, **REST)


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        (
            {"_class_name": "UNet2DModel"},
            "is of the class UNet2DModel, but an autoencoder's _class_name is AutoencoderKL",
        ),
        ({"_class_name": None}, "does not name a class of diffusers"),
        ({"latent_channels": 16}, r"has the shape \(8, 8, 3, 3\), but its configuration implies \(32, 8, 3, 3\)"),
        ({"latent_channels": "4"}, 'latent_channels="4" is not supported; it must be a positive integer'),
        ({"in_channels": 1}, "out_channels=3 is not supported; it must be in_channels, 1"),
        ({"down_block_types": ["AttnDownEncoderBlock2D"]}, "down_block_types=.* it must be 2 times DownEncoderBlock2D"),
        ({"act_fn": "relu"}, 'act_fn="relu" is not supported; it must be silu'),
        ({"block_out_channels": []}, "it must be a list of positive integers"),
        ({"norm_num_groups": 3}, r"groups=3 must divide the number of channels at each resolution, \[4, 8\]"),
        ({"use_quant_conv": False}, r"quant_conv\.bias is no tensor of such an AutoencoderKL"),
        ({"layers_per_block": 3}, r"does not contain encoder\.down_blocks\.0\.resnets\.\d\."),
        ({"patch_size": 2}, "patch_size=2 is not supported; it must be null or missing"),
        ({"scaling_factor": None}, "scaling_factor=null is not supported; it must be a number"),
    ],
)
def test_settings_of_another_network_are_refused(published, entries, why):
    _, folder = published
    changed(folder, **entries)
    with pytest.raises(RefusedInput, match=why):
        AutoencoderKL.from_diffusers(folder, **REST)


def test_an_unknown_layout_is_refused_by_its_first_name(published, tmp_path):
    _, folder = published
    tensors = load_file(folder / WEIGHTS)
    save_file(tensors | {"encoder.down_blocks.1.attentions.0.to_q.weight": torch.ones(2)}, folder / WEIGHTS)
    with pytest.raises(
        RefusedInput, match=r"encoder\.down_blocks\.1\.attentions\.0\.to_q\.weight is no tensor of such"
    ):
        AutoencoderKL.from_diffusers(folder, **REST)
    state = latent_diffusion.weights() | {"encoder.down.1.attn.0.q.weight": torch.ones(2)}
    save_file(state, tmp_path / "ae.safetensors")
    with pytest.raises(
        RefusedInput, match=r"ae\.safetensors: encoder\.down\.1\.attn\.0\.q\.weight is no tensor of such"
    ):
        AutoencoderKL.from_diffusers(tmp_path / "ae.safetensors", image_size=16, **REST)
    save_file({"unet.weight": torch.ones(1)}, tmp_path / "ae.safetensors")
    with pytest.raises(
        RefusedInput, match=r"no convolution encoder\.conv_in\.weight; its first tensor is unet\.weight"
    ):
        AutoencoderKL.from_diffusers(tmp_path / "ae.safetensors")
    with pytest.raises(RefusedInput, match=f"has the names of diffusers.*use the path of its folder with {CONFIG}"):
        AutoencoderKL.from_diffusers(folder / WEIGHTS)


def test_damaged_and_missing_files_are_named(published, tmp_path):
    _, folder = published
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RefusedInput, match=rf"{WEIGHTS} cannot be read as safetensors; copy or download it again: \S"):
        AutoencoderKL.from_diffusers(folder)
    (folder / WEIGHTS).rename(folder / "diffusion_pytorch_model.bin")
    with pytest.raises(RefusedInput, match=f"no {WEIGHTS} and no {INDEX}, but diffusion_pytorch_model.bin: save the"):
        AutoencoderKL.from_diffusers(folder)
    (folder / CONFIG).write_text("{")
    with pytest.raises(RefusedInput, match=f"{CONFIG} cannot be read as JSON"):
        AutoencoderKL.from_diffusers(folder)
    (folder / CONFIG).write_text("[]")
    with pytest.raises(RefusedInput, match="does not name a class of diffusers"):
        AutoencoderKL.from_diffusers(folder)
    with pytest.raises(RefusedInput, match=rf"contains no {CONFIG}: it is a pipeline, use {folder}"):
        AutoencoderKL.from_diffusers(tmp_path)
    with pytest.raises(RefusedInput, match=r"there is no autoencoder at .*none: use a folder"):
        AutoencoderKL.from_diffusers(tmp_path / "none")


def test_arguments_that_the_weights_determine_are_refused(published):
    _, folder = published
    with pytest.raises(
        RefusedInput,
        match=r"vae: its weights need other settings than this model has: data\.channels=3 model\.blocks=1\.",
    ):
        AutoencoderKL.from_diffusers(folder, channels=1, blocks=2, **REST)
    with pytest.raises(RefusedInput, match=r"image_size=17: .* must be multiples of 2 pixels"):
        AutoencoderKL.from_diffusers(folder, image_size=17)


def test_images_that_the_encoder_cannot_halve_and_other_channels_are_refused(tiny_gan):
    module = tiny_gan("autoencoder_kl")
    with pytest.raises(
        RefusedInput, match=r"pictures have the size \[15,18\].* multiples of 2: .* pad them to \[16,18\]"
    ):
        module.encode(torch.rand(1, 1, 15, 18))
    with pytest.raises(RefusedInput, match="set channels=3 of the model"):
        module.encode(torch.rand(1, 3, 16, 16))
    with pytest.raises(RefusedInput, match="latents"):
        module.decode_latents(torch.rand(1, 3, 8, 8))


def test_the_decoder_alone_is_trained(tiny_gan, random_images, fit):
    for settings in ({}, {"quantizer": "vq", "num_codes": 6}):
        module = tiny_gan("autoencoder_kl", train="decoder", discriminator_start=0, quant_conv=True, **settings)
        before = {name: value.clone() for name, value in module.generator.state_dict().items()}
        fit(module, random_images(), max_steps=2)
        for name, value in module.generator.state_dict().items():
            assert torch.equal(value, before[name]) == name.startswith(("encoder.", "bottleneck.")), name


@pytest.mark.runs
@pytest.mark.parametrize(("quant", "latent_channels"), LAYOUTS)
@pytest.mark.filterwarnings("ignore")  # theirs, at import
def test_diffusers_computes_the_same_and_reads_it_bitwise(tmp_path, images, quant, latent_channels):
    theirs = their_class()(
        down_block_types=["DownEncoderBlock2D"] * 2,
        up_block_types=["UpDecoderBlock2D"] * 2,
        block_out_channels=(8, 16),
        layers_per_block=2,
        latent_channels=latent_channels,
        norm_num_groups=4,
        sample_size=16,
        use_quant_conv=quant,
        use_post_quant_conv=quant,
        scaling_factor=0.3,
        shift_factor=None if quant else 0.1,
    )
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0, 0.2)
    # in shards, too
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="10GB" if quant else "50KB")
    assert (tmp_path / "theirs" / INDEX).exists() != quant
    module = AutoencoderKL.from_diffusers(tmp_path / "theirs", **REST)
    again = their_class().from_pretrained(save_diffusers(module, tmp_path / "ours"))
    assert [*again.state_dict()] == [*theirs.state_dict()]
    torch.testing.assert_close(again.state_dict(), theirs.state_dict(), rtol=0, atol=0)
    for name, value in theirs.config.items():
        if not name.startswith("_"):
            assert json.dumps(again.config[name]) == json.dumps(value), name

    ours, theirs, other = module.generator.double(), theirs.double(), images.clone().requires_grad_()
    posterior = theirs.encode(other).latent_dist
    noise = torch.randn_like(posterior.mean)
    expected = theirs.decode(posterior.mean + posterior.std * noise).sample
    near(ours.encode(images)[0], posterior.mean)
    made, _, divergence, *_ = ours(images.requires_grad_(), noise)
    near(made, expected)
    near(divergence, posterior.kl())
    for images_of, divergences in ((made, divergence), (expected, posterior.kl())):
        (images_of.square().mean() + divergences.mean() / 100).backward()
    near(images.grad, other.grad)
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for parameter in ours.parameters():
        parameter.data = parameter.grad
    from lit_gans.networks.autoencoder_names import to_diffusers

    near(to_diffusers(ours), gradients)


@pytest.mark.runs
@pytest.mark.filterwarnings("ignore")  # theirs, at import
def test_the_stored_layout_is_that_of_diffusers():
    from tests.networks.test_autoencoder_names import SD, stored

    with torch.device("meta"):
        theirs = their_class()(
            down_block_types=["DownEncoderBlock2D"] * 4,
            up_block_types=["UpDecoderBlock2D"] * 4,
            block_out_channels=[SD["width"] * multiplier for multiplier in SD["multipliers"]],
            layers_per_block=SD["blocks"],
        )
    assert {name: [*value.shape] for name, value in theirs.state_dict().items()} == stored()


def their_class():
    return pytest.importorskip("diffusers").AutoencoderKL
