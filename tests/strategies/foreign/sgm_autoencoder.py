"""`AutoencodingEngine` of generative-models (`sgm`), with its discriminator, which trains in every second batch."""

from unittest.mock import patch

import torch
from sgm.models.autoencoder import AutoencodingEngine
from sgm.modules.autoencoding.lpips.loss import lpips
from torchvision.models import vgg16

SIZES = {"ch": 32, "ch_mult": (1, 2), "num_res_blocks": 1, "attn_resolutions": [], "resolution": 32, "dropout": 0.0}
SIZES |= {"z_channels": 4, "in_channels": 3, "out_ch": 3, "attn_type": "none"}
LOSS_OF_A_BATCH = (AutoencodingEngine, "inner_training_step")  # its adaptive weight is that of a process' own images


class Ported(AutoencodingEngine):
    penalized_networks = ("decoder",)


def config(target, **params):
    return {"target": target, "params": params}


def module():
    critic = config("sgm.modules.autoencoding.lpips.model.model.NLayerDiscriminator", input_nc=3, ndf=8, n_layers=1)
    loss = "sgm.modules.autoencoding.losses.GeneralLPIPSWithDiscriminator"
    # the perceptual network is random, since its weights would be downloaded
    with (
        patch.object(lpips.models, "vgg16", lambda **_: vgg16(weights=None)),
        patch.object(lpips.LPIPS, "load_from_pretrained", lambda *_: None),
    ):
        engine = Ported(
            encoder_config=config("sgm.modules.diffusionmodules.model.Encoder", double_z=True, **SIZES),
            decoder_config=config("sgm.modules.diffusionmodules.model.Decoder", **SIZES),
            loss_config=config(
                loss, disc_start=0, discriminator_config=critic, regularization_weights={"kl_loss": 0.1}
            ),
            regularizer_config=config("sgm.modules.autoencoding.regularizers.DiagonalGaussianRegularizer"),
        )
    engine.learning_rate = 1e-3  # which their main.py sets
    return engine


def batches(generator):
    return [{"jpg": torch.rand(4, 3, 32, 32, generator=generator) * 2 - 1} for _ in range(4)]
