"""The benchmark beside torch-mimicry's step: its networks have the published sizes, and what it reports."""

import json

import pytest
from torch import nn

from lit_gans.benchmark.layers import kind_of_operator
from lit_gans.benchmark.peer import peer
from lit_gans.benchmark.peer_networks import PeerDiscriminator, PeerGenerator
from lit_gans.common.errors import RefusedInput


def test_the_networks_have_as_many_parameters_as_published_and_as_ours():
    def count(network):
        return sum(parameter.numel() for parameter in network.parameters())

    assert count(PeerGenerator(128, 3, 256)) == 4_276_739
    assert count(PeerDiscriminator(3, 128, spectral=False)) == 1_053_825
    assert count(PeerDiscriminator(3, 128, spectral=True)) == 1_053_825


@pytest.mark.slow
def test_both_gans_are_timed_and_counted(tmp_path, capsys):
    result = peer("smoke", output=str(tmp_path / "peer.json"))
    assert json.loads((tmp_path / "peer.json").read_text()) == result
    for name, found in result["gans"].items():
        theirs, ours = (found["work"][loop] for loop in ("peer", "lit_gans"))
        assert theirs["parameters"] == ours["parameters"]
        passes = {"generator": 6, "discriminator": 16 if name == "wgan_gp" else 11}  # with those of the penalty
        assert theirs["passes"] == ours["passes"] == passes
        assert theirs["flops"] > 1.3 * ours["flops"] > 0, "convolutions with resampling cost less"
        assert found["speedup"]["median"] > 0 < found["processor_speedup"]["median"]
        for times in found["operators"].values():
            assert times["by_kind"]["convolutions"] > 0 < times["by_kind"]["their gradients"]
            assert all(row["flops"] > 0 < row["seconds"] for row in times["by_layer"].values())
    printed = capsys.readouterr().out
    assert all(text in printed for text in ("sngan", "wgan_gp", "speedup", "slowest layers"))


@pytest.mark.slow
def test_compiled_networks_take_turns_with_uncompiled_ones(monkeypatch, capsys):
    compiled = []
    monkeypatch.setattr(nn.Module, "compile", lambda network: compiled.append(network))  # the compiler takes minutes
    found = peer("smoke", gans=("sngan",), compile=True)["gans"]["sngan"]
    assert len(compiled) == 2, "generator and discriminator of one module"
    assert set(found["seconds"]) == {"peer", "uncompiled", "lit_gans"}
    assert found["compiled_speedup"]["median"] > 0
    assert "sngan: compiled" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("convolution_backward", "their gradients"),
        ("native_batch_norm_backward", "batch norm"),
        ("upsample_bilinear2d", "resampling"),
        ("_fused_adam_", "fused optimizer"),
        ("add", "other"),
    ],
)
def test_operators_have_kinds(operator, kind):
    assert kind_of_operator(operator) == kind


def test_wrong_values_are_refused():
    with pytest.raises(RefusedInput, match="choose from sngan, wgan_gp"):
        peer(gans=("dcgan",))
    with pytest.raises(RefusedInput, match="steps=0"):
        peer(steps=0)
