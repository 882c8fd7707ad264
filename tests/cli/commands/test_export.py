"""`lit-gans export` on the checkpoint of a run."""

import pytest
import torch
from huggingface_hub import ModelCard
from lightning.pytorch.callbacks import LambdaCallback

from lit_gans.callbacks import InitFrom
from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.common.errors import RefusedInput
from lit_gans.config.load import load
from tests.commands import TINY


@pytest.fixture
def run(saved, tmp_path):
    saved()
    return tmp_path / "run"


def test_the_folder_of_a_run_becomes_a_folder_of_safetensors(ran, run):
    out = ran("export", "checkpoint=run", "optimizers=true")
    assert out == "networks of DCGAN: run/networks\n"
    assert (run / "networks/training.pt").is_file()
    torch.testing.assert_close(load(run / "networks").state_dict(), load(run).state_dict(), rtol=0, atol=0)
    ran("export", "checkpoint=run", "weights=raw", "dtype=float16", "output=mine")
    torch.testing.assert_close(load("mine").sample(4), load(run).sample(4, weights="raw"), rtol=0, atol=2e-3)


def test_what_was_exported_is_a_checkpoint(ran, run):
    ran("export", "checkpoint=run", "output=mine")
    ran("export", "checkpoint=mine", "output=again")
    torch.testing.assert_close(load("again").state_dict(), load(run).state_dict(), rtol=0, atol=0)
    ran("interpolate", "checkpoint=mine", "num=1")
    assert (run.parent / "generated/interpolation.png").is_file()


def test_files_that_no_export_has_written_stay(ran, refused, run):
    mine = run.parent / "mine"
    mine.mkdir()
    (mine / "README.md").write_text("my notes")
    said = refused("export", "checkpoint=run", "output=mine")
    assert "mine has README.md, which would be replaced: choose another folder" in said
    assert [path.name for path in mine.iterdir()] == ["README.md"]
    ran("export", "checkpoint=run", "output=nets", "optimizers=true")
    said = refused("export", "checkpoint=nets", "output=nets", "license=mit")
    assert "whose optimizers would be lost: add optimizers=true" in said
    assert (run.parent / "nets/training.pt").is_file()
    ran("export", "checkpoint=nets", "output=nets", "license=mit", "optimizers=true")


def test_a_file_that_is_no_card_of_an_onnx_file_stays(refused, run):
    (run / "README.md").write_text("my notes")
    said = refused("export", "checkpoint=run", "format=onnx", "output=run/README")
    assert "output=run/README: its model card would replace run/README.md: choose another name." in said
    assert (run / "README.md").read_text() == "my notes"


LAYOUT = {"asymmetric_padding": True, "groups": 2, "scaling_factor": 0.3}
OTHERS = {"config.json": '{"architectures": ["BertModel"]}', "model.safetensors": "weights", "README.md": "my notes"}


@pytest.mark.parametrize("format", ["safetensors", "diffusers"])
def test_the_model_of_another_library_stays(saved, refused, tmp_path, format):
    saved("autoencoder_kl", **LAYOUT)
    (tmp_path / "bert").mkdir()
    for name, text in OTHERS.items():
        (tmp_path / "bert" / name).write_text(text)
    said = refused("export", "checkpoint=run", "output=bert", f"format={format}")
    assert "which would be replaced: choose another folder" in said
    assert {path.name: path.read_text() for path in (tmp_path / "bert").iterdir()} == OTHERS


@pytest.mark.runs
def test_an_onnx_file(ran, run):
    onnxruntime = pytest.importorskip("onnxruntime")
    out = ran("export", "checkpoint=run", "format=onnx")
    assert "inputs    latents (n, 6)" in out
    module = load(run)
    session = onnxruntime.InferenceSession(str(run / "generator.onnx"), providers=["CPUExecutionProvider"])
    (images,) = session.run(None, {"latents": module.latents(3, seed=1).numpy()})
    torch.testing.assert_close(torch.from_numpy(images), module.sample(3, seed=1), rtol=0, atol=1e-5)
    card = ModelCard.load(run / "generator.onnx.md")
    assert (card.data.library_name, card.data.license) == ("onnx", "other")
    assert "| `latents` | (n, 6) |" in card.text
    ran("export", "checkpoint=run", "format=onnx", "license=mit")
    assert ModelCard.load(run / "generator.onnx.md").data.license == "mit"


def test_onnx_is_the_generator_in_float32_alone(refused, run):
    assert "format=safetensors writes both directions" in refused("export", "checkpoint=run", "direction=b_to_a")
    for word in ("dtype=float16", "optimizers=true"):
        assert "format=onnx writes a generator in float32" in refused("export", "checkpoint=run", "format=onnx", word)


@pytest.mark.runs
def test_an_autoencoder_for_diffusers_from_which_a_run_begins(
    ran, refused, saved, fit, random_images, tiny_gan, tmp_path
):
    module = load(saved("autoencoder_kl", **LAYOUT))
    for _ in range(2):  # an export replaces what an earlier one has written
        out = ran("export", "checkpoint=run", "format=diffusers")
        assert out == "generator of AutoencoderKL, ema weights: run/diffusers\n"
    card = ModelCard.load("run/diffusers/README.md")
    assert (card.data.library_name, card.data.tags) == ("diffusers", ["gan", "autoencoder_kl"])
    assert "AutoencoderKL.from_pretrained" in card.text
    assert "without optimizers" in refused("export", "checkpoint=run", "format=diffusers", "optimizers=true")
    for factor in ("0", "-1"):
        said = refused("export", "checkpoint=run", "format=diffusers", f"scaling_factor={factor}")
        assert "must be greater than 0 and finite" in said
    again = tiny_gan("autoencoder_kl", **LAYOUT)
    begun = LambdaCallback(
        on_train_start=lambda *_: torch.testing.assert_close(
            again.generator.state_dict(), module.averaged_generator.state_dict(), rtol=0, atol=0
        )
    )
    assert fit(again, random_images(), max_steps=1, callbacks=[InitFrom("run/diffusers"), begun]).global_step == 1


@pytest.mark.runs
def test_a_run_that_begins_with_a_published_autoencoder_has_its_settings(saved, ran, refused, tiny_gan):
    saved("autoencoder_kl", **LAYOUT)
    ran("export", "checkpoint=run", "format=diffusers")
    why = r"model\.generator_width=4 model\.groups=2 model\.asymmetric_padding=true model\.scaling_factor=0\.3\.$"
    with pytest.raises(RefusedInput, match=rf"run/diffusers: its weights need other settings .*: {why}"):
        InitFrom("run/diffusers").load(tiny_gan("autoencoder_kl", generator_width=8))
    with pytest.raises(RefusedInput, match="is an autoencoder, but this model is a DCGAN: use model=autoencoder_kl"):
        InitFrom("run/diffusers").load(tiny_gan())
    for command in ("sample", "evaluate", "export"):
        said = refused(command, "checkpoint=run/diffusers")
        assert (
            "run/diffusers is not a checkpoint of lit_gans, but it can be a published autoencoder: start a run" in said
        )
    with pytest.raises(RefusedInput, match=r"there is no autoencoder at none\.safetensors"):
        InitFrom("none.safetensors").load(tiny_gan("autoencoder_kl"))


def test_a_gan_is_not_for_diffusers(refused, run, tmp_path):
    said = refused("export", "checkpoint=run", "format=diffusers", "output=new")
    assert "writes autoencoders (model=autoencoder_kl), not a DCGAN" in said
    assert not (tmp_path / "new").exists()


@pytest.mark.runs
def test_an_exported_run_continues_bitwise_elsewhere(train, ran, tmp_path):
    tiny = [word for word in TINY if word != "model=dcgan"] + ["model=d2gan"]
    for steps, resume in ((8, "none"), (5, "none"), (8, "mine")):  # an epoch has ten
        assert train(*tiny, f"trainer.max_steps={steps}", f"resume={resume}") == 0, train.err
        last = "outputs/d2gan_digits/version_1/checkpoints/last.ckpt"
        if steps == 5:
            ran("export", f"checkpoint={last}", "output=mine", "optimizers=true")
    whole, resumed = (read_checkpoint(f"outputs/d2gan_digits/version_{number}") for number in (0, 2))
    assert whole["global_step"] == resumed["global_step"] == 8
    for key in ("state_dict", "generator_ema", "optimizer_states"):
        torch.testing.assert_close(resumed[key], whole[key], rtol=0, atol=0)
    ran("export", f"checkpoint={last}", "output=mine")
    assert train(*tiny, "trainer.max_steps=8", "resume=mine") == 2
    assert "mine contains networks without their optimizers: use init_from=mine to start a new run" in train.err
