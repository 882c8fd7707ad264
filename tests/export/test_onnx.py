"""ONNX files of every generator give the images of `sample`."""

import pytest
import torch

from lit_gans.export.onnx import GeneratorGraph, example_inputs, export_onnx
from tests.gans import GANS
from tests.tiny import supports_classes

onnxruntime = pytest.importorskip("onnxruntime")
DEFAULT = ("dcgan", "pix2pix", "sngan")  # transposed convolutions, a U-Net with dropout, residual blocks
CASES = [pytest.param(name, {}, id=name, marks=() if name in DEFAULT else pytest.mark.slow) for name in GANS]
CASES += [
    pytest.param("dcgan", {"num_classes": 10}, id="classes"),
    pytest.param("gan", {"image_size": 1, "channels": 2}, id="points"),
    *(
        pytest.param(name, {"num_classes": 10}, id=f"{name} classes", marks=pytest.mark.slow)
        for name in GANS
        if name != "dcgan" and supports_classes(name)
    ),
    pytest.param("dcgan", {"block": "separable"}, id="separable", marks=pytest.mark.slow),
]


def run(path, inputs):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == list(inputs)
    assert [each.name for each in session.get_outputs()] == ["images"]
    return torch.from_numpy(session.run(None, {name: value.numpy() for name, value in inputs.items()})[0])


@pytest.mark.runs
@pytest.mark.parametrize(("name", "settings"), CASES)
def test_onnxruntime_agrees(tiny_gan, tmp_path, name, settings):
    module = tiny_gan(name, **settings).eval()
    average = module.start_average()
    with torch.no_grad():
        for parameter in average.parameters():
            parameter.add_(0.05)
    path = export_onnx(module, tmp_path / "generator.onnx")
    assert [each.name for each in tmp_path.iterdir()] == ["generator.onnx"], "one file, and nothing beside it"
    for num in (1, 5):
        inputs = example_inputs(module, num, seed=3)
        with torch.no_grad():
            expected = GeneratorGraph(module)(*inputs.values())
        torch.testing.assert_close(run(path, inputs), expected, rtol=0, atol=1e-5)
    assert (expected - GeneratorGraph(module, "raw")(*inputs.values())).abs().max() > 1e-4, "the averaged weights"
    if [*inputs] == ["latents"]:
        latents = module.latents(4, seed=2)
        torch.testing.assert_close(run(path, {"latents": latents}), module.sample(4, seed=2), rtol=0, atol=1e-5)
