"""Several batches in one pass: what the benchmark reports, and what differs."""

import json

import pytest
import torch
from torch import nn

from lit_gans.benchmark import passes as command
from lit_gans.benchmark.passes import passes
from lit_gans.common.errors import RefusedInput


@pytest.mark.slow
def test_batch_norm_makes_one_pass_another_result_and_a_discriminator_without_it_does_not(tmp_path, capsys):
    result = passes("smoke", output=str(tmp_path / "passes.json"))
    assert json.loads((tmp_path / "passes.json").read_text()) == result
    for name, found in result["gans"].items():
        assert found["generator"]["difference"] > 1e-2, name
        assert found["discriminator"]["difference"] < 1e-4, name
        for row in found.values():
            assert 0 < row["speedup"]["lower_quartile"] <= row["speedup"]["upper_quartile"]
            assert min(row["seconds"].values()) > 0
    printed = capsys.readouterr().out
    assert all(text in printed for text in ("sngan, generator", "wgan_gp, discriminator", "speedup"))


def test_the_difference_is_relative_and_from_the_same_state():
    norm = nn.BatchNorm1d(2)

    def work(value):
        norm(torch.ones(2, 2))
        return torch.tensor([-4.0, value + norm.running_mean[0].item()])

    works = {"separate": lambda: work(1.0), "at_once": lambda: work(2.0)}
    assert command._difference(norm, works) == pytest.approx(0.25)


def test_wrong_values_are_refused():
    with pytest.raises(RefusedInput, match="choose from sngan, wgan_gp"):
        passes(gans=("dcgan",))
    with pytest.raises(RefusedInput, match="rounds=0"):
        passes(rounds=0)
