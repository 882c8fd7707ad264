"""CompVis/taming-transformers, taming/models/vqgan.py: a small `VQModel` under Lightning 1.9's `ddp`; LPIPS is zero."""

import sys
import types

from tests.audits.common import BATCH, BatchNormOfAllRanks, checkout, cpu, random_rows, zero_loss
from tests.audits.lightning1 import fit

sys.path.insert(0, str(checkout("taming")))
main = types.ModuleType("main")  # the model imports a function from this script
main.instantiate_from_config = lambda config: config

if __name__ == "__main__":
    sys.modules["main"] = main
    with cpu("autoencoder", "discriminator"):
        from taming.models.vqgan import VQModel
        from taming.modules.losses import vqperceptual

        vqperceptual.LPIPS = zero_loss
        adaptive = vqperceptual.VQLPIPSWithDiscriminator.calculate_adaptive_weight
        vqperceptual.VQLPIPSWithDiscriminator.calculate_adaptive_weight = lambda *args, **kwargs: (
            0 * adaptive(*args, **kwargs)
        )
        loss = vqperceptual.VQLPIPSWithDiscriminator(disc_start=0, disc_num_layers=1, disc_ndf=8, perceptual_weight=0)
        sizes = {"ch": 32, "ch_mult": (1, 2), "num_res_blocks": 1, "attn_resolutions": [], "resolution": 16}
        sizes |= {"double_z": False, "z_channels": 8, "in_channels": 3, "out_ch": 3}
        module = VQModel(sizes, loss, n_embed=16, embed_dim=8)
        BatchNormOfAllRanks.converted(module.loss)
        module.learning_rate = 1e-3  # their main.py sets it
        module.log = module.log_dict = lambda *args, **kwargs: None
        rows = random_rows(BATCH * 6, 16, 16, 3) * 2 - 1
        fit(module, [{"image": row} for row in rows])
