"""CompVis/latent-diffusion, ldm/models/autoencoder.py: a small `AutoencoderKL` under Lightning 1.9; LPIPS is zero."""

import sys

from tests.audits.common import BATCH, BatchNormOfAllRanks, checkout, cpu, random_rows, zero_loss
from tests.audits.lightning1 import fit

sys.path.insert(0, str(checkout("taming")))
sys.path.insert(0, str(checkout("ldm")))

if __name__ == "__main__":
    with cpu("autoencoder", "discriminator"):
        from ldm.models import autoencoder
        from ldm.modules.losses import contperceptual

        contperceptual.LPIPS = zero_loss
        loss = {"disc_start": 0, "disc_num_layers": 1, "disc_weight": 0.0, "perceptual_weight": 0.0}
        sizes = {"ch": 32, "ch_mult": (1, 2), "num_res_blocks": 1, "attn_resolutions": [], "resolution": 16}
        sizes |= {"double_z": True, "z_channels": 4, "in_channels": 3, "out_ch": 3}
        config = {"target": "ldm.modules.losses.contperceptual.LPIPSWithDiscriminator", "params": loss}
        module = autoencoder.AutoencoderKL(sizes, config, embed_dim=4)
        BatchNormOfAllRanks.converted(module.loss)
        module.learning_rate = 1e-3  # their main.py sets it
        module.log = module.log_dict = lambda *args, **kwargs: None
        rows = random_rows(BATCH * 6, 16, 16, 3) * 2 - 1
        fit(module, [{"image": row} for row in rows])
