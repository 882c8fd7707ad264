"""The benchmark beside torch-mimicry's step: its networks have the published sizes, and what it reports."""

import json

import pytest

from lit_gans.benchmark.peer import peer
from lit_gans.benchmark.peer_networks import PeerDiscriminator, PeerGenerator
from lit_gans.common.errors import RefusedInput


def test_the_networks_have_as_many_parameters_as_published_and_as_ours():
    def count(network):
        return sum(parameter.numel() for parameter in network.parameters())

    assert count(PeerGenerator(128, 3, 256)) == 4_276_739
    assert count(PeerDiscriminator(3, 128, spectral=False)) == 1_053_825
    assert count(PeerDiscriminator(3, 128, spectral=True)) == 1_053_825


def test_both_gans_are_timed_and_counted(tmp_path, capsys):
    result = peer("smoke", output=str(tmp_path / "peer.json"))
    assert json.loads((tmp_path / "peer.json").read_text()) == result
    for found in result["gans"].values():
        assert found["flops"]["peer"] > found["flops"]["lit_gans"] > 0, "skips after upsampling cost four times as much"
        assert found["speedup"]["median"] > 0
    printed = capsys.readouterr().out
    assert all(text in printed for text in ("sngan", "wgan_gp", "speedup"))


def test_wrong_values_are_refused():
    with pytest.raises(RefusedInput, match="choose from sngan, wgan_gp"):
        peer(gans=("dcgan",))
    with pytest.raises(RefusedInput, match="steps=0"):
        peer(steps=0)
