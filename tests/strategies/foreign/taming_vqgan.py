"""`VQModel` of taming-transformers, which is written for Lightning 1: an adaptive weight by the last layer."""

import sys
from unittest.mock import patch

import pytorch_lightning
import torch
from torchvision.models import vgg16

sys.modules["pytorch_lightning.utilities.distributed"] = pytorch_lightning.utilities  # its name in Lightning 1

from taming.models.vqgan import VQModel  # noqa: E402
from taming.modules.losses import lpips, vqperceptual  # noqa: E402

SIZES = {"ch": 32, "ch_mult": (1, 2), "num_res_blocks": 1, "attn_resolutions": [], "resolution": 32}
LOSS = "taming.modules.losses.vqperceptual.VQLPIPSWithDiscriminator"
LOSS_OF_A_BATCH = (VQModel, "training_step")  # its adaptive weight is that of a process' own images


class Ported(VQModel):
    penalized_networks = ("decoder",)
    learning_rate = 1e-3  # which their main.py sets

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        for index, optimizer in enumerate(self.optimizers()):
            self.toggle_optimizer(optimizer)
            self.manual_backward(super().training_step(batch, batch_idx, index))
            optimizer.step()
            optimizer.zero_grad()
            self.untoggle_optimizer(optimizer)


def module():
    encoder = {"double_z": False, "z_channels": 8, "in_channels": 3, "out_ch": 3, **SIZES}
    loss = {"target": LOSS, "params": {"disc_start": 0, "disc_num_layers": 1, "disc_ndf": 8}}
    # the perceptual network is random, since its weights would be downloaded
    with (
        patch.object(lpips.models, "vgg16", lambda **_: vgg16(weights=None)),
        patch.object(vqperceptual.LPIPS, "load_from_pretrained", lambda *_: None),
    ):
        return Ported(encoder, loss, n_embed=16, embed_dim=8)


def batches(generator):
    return [{"image": torch.rand(4, 32, 32, 3, generator=generator) * 2 - 1} for _ in range(3)]
