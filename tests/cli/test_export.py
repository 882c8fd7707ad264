"""`lit-gans export` on the checkpoint of a run."""

import pytest
import torch

from lit_gans.callbacks import EMA
from lit_gans.config.load import load
from lit_gans.export.safetensors import load_generator


@pytest.fixture
def run(tiny_gan, random_images, fit, tmp_path):
    trainer = fit(tiny_gan(), random_images(), max_steps=2, callbacks=[EMA()])
    trainer.save_checkpoint(tmp_path / "run/checkpoints/last.ckpt")
    return tmp_path / "run"


def test_the_folder_of_a_run_becomes_a_folder_of_safetensors(command, run):
    code, out, err = command("export", "checkpoint=run")
    assert code == 0, err
    assert "generator of DCGAN, ema weights: run/generator" in out
    assert torch.equal(load_generator(run / "generator").sample(4), load(run).sample(4))
    code, out, err = command("export", "checkpoint=run", "weights=raw", "output=mine")
    assert (code, "raw weights: mine" in out) == (0, True), err
    assert torch.equal(load_generator("mine").sample(4), load(run).sample(4, weights="raw"))
    (run / "new").mkdir()
    for folder, again in (("mine", ", which replaces an earlier one"), ("run/new", "")):
        out = command("export", "checkpoint=run", f"output={folder}")[1]
        assert out.strip().endswith(f"weights: {folder}{again}")


def test_an_onnx_file(command, run):
    onnxruntime = pytest.importorskip("onnxruntime")
    code, out, err = command("export", "checkpoint=run", "format=onnx")
    assert code == 0, err
    assert "inputs    latents (n, 6)" in out
    module = load(run)
    session = onnxruntime.InferenceSession(str(run / "generator.onnx"), providers=["CPUExecutionProvider"])
    (images,) = session.run(None, {"latents": module.latents(3, seed=1).numpy()})
    torch.testing.assert_close(torch.from_numpy(images), module.sample(3, seed=1), rtol=0, atol=1e-5)
