"""Somebody's LightningModule measures FID in ten lines, as the guide shows it."""

import pytest
import torch

from lit_gans.data.images import to_uint8
from lit_gans.metrics import FrechetInceptionDistance
from lit_gans.metrics.extractors.digits import DigitsExtractor
from tests.metrics import own_module
from tests.strategies.ranks import run


@pytest.fixture(scope="module")
def expected():
    fid = FrechetInceptionDistance(DigitsExtractor())
    for images, real in zip(own_module.images(), (True, False), strict=True):
        fid.update(to_uint8(images), real=real)
    return fid.compute().item()


def test_one_process_logs_the_distance_of_all_images(expected, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    found = own_module.validate(tmp_path)
    assert found["logged"] == [{"fid": pytest.approx(expected, rel=1e-6)}]
    assert found["keys"] == ["generator.weight"], "neither the extractor nor the sums are part of a checkpoint"
    assert expected > 1


@pytest.mark.parametrize("strategy", own_module.STRATEGIES)
def test_under_ddp_every_rank_logs_what_one_process_does(expected, tmp_path, strategy):
    ranks = run("tests.metrics.own_module.validate", tmp_path, folder=str(tmp_path), strategy=strategy)
    for found in ranks:
        assert found["logged"] == [{"fid": pytest.approx(expected, rel=1e-6)}]
        assert found["keys"] == ["generator.weight"]
    assert torch.equal(*(torch.tensor(found["logged"][0]["fid"]) for found in ranks))
