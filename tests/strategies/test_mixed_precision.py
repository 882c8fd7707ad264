"""NetworkFSDP with weights in bfloat16 and reductions in float32, against one process that does the same by hand."""

from copy import deepcopy

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback
from torch.nn.functional import softplus

from lit_gans.common.errors import RefusedInput
from lit_gans.strategies import fsdp
from lit_gans.strategies.fsdp import NetworkFSDP

from . import ranks
from .own_modules import Own, Penalized
from .test_own_module import train

STEPS = 6
SETTINGS = {
    "reduced in float32": {"param_dtype": "bf16"},
    "by layer": {"param_dtype": "bf16", "wrap": "layer"},
    "unsharded in between": {"param_dtype": "bf16", "reshard_after_forward": False},
    "reduced in bfloat16": {"param_dtype": "bf16", "reduce_dtype": "bf16"},
}


def on_a_rank():
    """Returns the weights of each setting, and the precisions of the gradients that are stepped with."""
    found = {}
    for name, settings in SETTINGS.items():
        strategy, dtypes = NetworkFSDP(**settings), set()

        def look(trainer, module, optimizer, dtypes=dtypes):
            dtypes |= {p.grad.dtype for group in optimizer.param_groups for p in group["params"]}

        # the generator first computes while it is frozen
        train(Own, devices=2, strategy=strategy, callbacks=[LambdaCallback(on_before_optimizer_step=look)])
        found[name] = strategy.lightning_module_state_dict(), dtypes
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return ranks.run("tests.strategies.test_mixed_precision.on_a_rank", tmp_path_factory.mktemp("mixed"))


@pytest.fixture(scope="module")
def by_hand():
    """Returns the weights of one process that trains float32 weights with copies of them in bfloat16."""
    module = Own()
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        real, latents = torch.randn(4, 4, generator=generator), torch.randn(4, 3, generator=generator)
        for trained in ("critic", "generator"):
            gradients = []
            for own in (slice(0, None, 2), slice(1, None, 2)):  # of two ranks
                half = {name: deepcopy(getattr(module, name)).bfloat16() for name in ("generator", "critic")}
                fake = half["generator"](latents[own].bfloat16())
                if trained == "generator":
                    loss = softplus(-half["critic"](fake)).mean()
                else:
                    scores = half["critic"](real[own].bfloat16()), half["critic"](fake.detach())
                    loss = softplus(-scores[0]).mean() + softplus(scores[1]).mean()
                loss.backward()
                gradients.append([parameter.grad.float() for parameter in half[trained].parameters()])
            for parameter, *grads in zip(getattr(module, trained).parameters(), *gradients, strict=True):
                parameter.data -= 0.1 * (grads[0] + grads[1]) / 2
    return module.state_dict()


@pytest.mark.skipif(not fsdp.REDUCES_FROZEN_ALIKE, reason="refused with this torch")
@pytest.mark.parametrize("name", SETTINGS)
def test_weights_are_those_of_a_reduction_in_float32(trained, by_hand, name):
    for rank in trained:
        weights, dtypes = rank[name]
        assert dtypes == {torch.float32}
        off = max((weights[key] - value).abs().max().item() for key, value in by_hand.items())
        if name == "reduced in bfloat16":
            assert off > 1e-5
        else:
            assert off <= 1e-6


def test_what_would_round_silently_is_refused(monkeypatch):
    strategy = NetworkFSDP(param_dtype="bf16")
    with pytest.raises(RefusedInput, match='param_dtype="bf16" does not work with a gradient penalty'):
        strategy.refuse(Penalized(), "32-true")
    strategy.refuse(Own(), "32-true")
    monkeypatch.setattr(fsdp, "REDUCES_FROZEN_ALIKE", False)
    with pytest.raises(RefusedInput, match=r"need torch 2\.14\.1 or newer: older versions silently reduce gradients"):
        fsdp.precision_policy("bf16", "fp32")
    assert fsdp.precision_policy("fp32", "fp32") == {}
