"""The LightningModule of the guide to metrics, on one process or several."""

import sys
from pathlib import Path

import torch
from lightning.pytorch import Trainer
from torch import nn
from torch.utils.data import DataLoader

from lit_gans.strategies.ddp import NetworkDDP
from tests.docs.blocks import ROOT, blocks

STRATEGIES = {"lightning": "ddp", "ours": NetworkDDP(process_group_backend="gloo")}


def images(num=120):
    """Real and generated images in [0, 1]; they are multiples of 1 / 255."""
    generator = torch.Generator().manual_seed(0)
    real, fake = torch.randint(0, 256, (2, num, 1, 32, 32), generator=generator) / 255
    return real, fake * 0.5


class Replay(nn.Module):
    """Ignores latents and returns given images in turn."""

    def __init__(self, images):
        super().__init__()
        self.images, self.start = images, 0
        self.weight = nn.Parameter(torch.ones(()))  # some strategies want one

    def forward(self, latents):
        self.start += len(latents)
        return self.images[self.start - len(latents) : self.start]


def measured_class(folder):
    """Imports the module as the guide has it."""
    page = ROOT / "docs" / "guides" / "metrics.md"
    (block,) = [block for block in blocks(page) if block.file == "measured.py"]
    (Path(folder) / "measured.py").write_text(block.code)
    sys.path.insert(0, str(folder))
    from measured import Measured

    return Measured


def validate(folder, strategy=None):
    """Returns what Lightning logged on this rank, and the keys of a checkpoint's weights."""
    torch.set_num_threads(1)
    module = measured_class(folder)()
    switches = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = Trainer(
        accelerator="cpu",
        devices=2 if strategy else 1,
        strategy=STRATEGIES[strategy] if strategy else "auto",
        **dict.fromkeys(switches, False),
    )
    real, fake = images()
    world_size = 2 if strategy else 1
    module.generator = Replay(fake[trainer.global_rank :: world_size])
    logged = trainer.validate(module, DataLoader(real, batch_size=16), verbose=False)
    return {"logged": logged, "keys": [*trainer._checkpoint_connector.dump_checkpoint()["state_dict"]]}
