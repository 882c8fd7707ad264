"""Losses and penalties are float32 under bf16 and fp16, for every GAN, and so are weights and gradients."""

import pytest
import torch

from lit_gans.training.schedules import is_zero
from lit_gans.training.step import TrainingStep
from tests.gans import GANS

PENALTIES = {"r1_gamma": 1.0, "r2_gamma": 1.0}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *(pytest.param(name, {}, id=name) for name in GANS),
        pytest.param("dcgan", PENALTIES, id="penalties"),
        pytest.param("r3gan", {"generator_width": 16, "discriminator_width": 16}, id="groups"),
        pytest.param("dcgan", {"block": "separable", **PENALTIES}, id="separable"),
    ],
)
def test_losses_penalties_and_gradients_are_float32(tiny_gan, name, settings, dtype):
    module = tiny_gan(name, **settings).train()
    step, num, found = TrainingStep(module, module.new_backend(10)), 2 * module.batches_per_step, {}
    backward = step.backend.backward

    def watched(network, loss, retain_graph):
        backward(network, loss, retain_graph)
        found[network] = (
            loss.dtype,
            {weight.grad.dtype for weight in step._trainable[network] if weight.grad is not None},
        )

    step.backend.backward = watched
    terms_of, penalties = step.discriminator_terms, []

    def terms(batch):
        terms = terms_of(batch)
        penalties.extend(penalty.dtype for _, penalty in terms.values() if penalty is not None)
        return terms

    step.discriminator_terms = terms
    images = torch.zeros(num, *module.image_shape)
    inputs = images.new_zeros(num, getattr(module, "input_channels", 1), *module.image_shape[1:])
    module.finite.late = True  # values in half precision may overflow here
    with torch.autocast("cpu", dtype=dtype, cache_enabled=False):
        losses = step({"image": images, "input": inputs, "label": torch.arange(num) % 10}, 0)
    float32 = torch.float32
    assert {loss.dtype for loss in losses.values()} == {float32}
    assert found == {network: (float32, {float32}) for network in module.network_names}
    assert {*penalties} <= {float32}
    assert bool(penalties) == (not is_zero(module.r1_gamma) or not is_zero(module.r2_gamma))
