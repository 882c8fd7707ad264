"""Somebody's LightningModule measures FID in ten lines, as the guide shows it, on one process or several."""

import sys

import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn
from torch.utils.data import DataLoader

from lit_gans.data.images import to_uint8
from lit_gans.metrics import FrechetInceptionDistance
from lit_gans.metrics.extractors.digits import DigitsExtractor
from lit_gans.strategies.ddp import NetworkDDP
from tests.docs.blocks import ROOT, blocks
from tests.strategies.ranks import run

STRATEGIES = {"lightning": "ddp", "ours": NetworkDDP(process_group_backend="gloo")}
# real and generated images in [0, 1], multiples of 1 / 255
REAL, FAKE = torch.randint(0, 256, (2, 120, 1, 32, 32), generator=torch.Generator().manual_seed(0)) / 255
FAKE = (FAKE * 127).round() / 255


class Replay(nn.Module):
    """Ignores latents and returns given images in turn."""

    def __init__(self, images):
        super().__init__()
        self.images, self.start = images, 0
        self.weight = nn.Parameter(torch.ones(()))  # some strategies want one

    def forward(self, latents):
        self.start += len(latents)
        return self.images[self.start - len(latents) : self.start]


def validate(folder, strategy=None):
    """Returns what Lightning logged on this rank, and the keys of a checkpoint's weights."""
    torch.set_num_threads(1)
    sys.path.insert(0, folder)
    from measured import Measured

    module, world_size = Measured(), 2 if strategy else 1
    switches = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    given = {"devices": world_size, "strategy": STRATEGIES.get(strategy, "auto"), **dict.fromkeys(switches, False)}
    trainer = Trainer(accelerator="cpu", **given)
    module.generator = Replay(FAKE[trainer.global_rank :: world_size])
    logged = trainer.validate(module, DataLoader(REAL, batch_size=16), verbose=False)
    return {"logged": logged, "keys": [*trainer._checkpoint_connector.dump_checkpoint()["state_dict"]]}


@pytest.mark.parametrize("strategy", [None, *STRATEGIES])
def test_every_rank_logs_the_distance_of_all_images(tmp_path, monkeypatch, strategy):
    monkeypatch.setattr(sys, "path", list(sys.path))
    fid = FrechetInceptionDistance(DigitsExtractor())
    for images, real in ((REAL, True), (FAKE, False)):
        fid.update(to_uint8(images), real=real)
    (block,) = [block for block in blocks(ROOT / "docs/guides/metrics_in_modules.md") if block.file == "measured.py"]
    (tmp_path / "measured.py").write_text(block.code)
    place, folder = "tests.metrics.test_own_module.validate", str(tmp_path)
    found = run(place, tmp_path, folder=folder, strategy=strategy) if strategy else [validate(folder)]
    for rank in found:
        assert rank["logged"] == [{"fid": pytest.approx(fid.compute().item(), rel=1e-6)}]
        assert rank["logged"] == found[0]["logged"]
        assert rank["keys"] == ["generator.weight"], "neither the extractor nor the sums are part of a checkpoint"
