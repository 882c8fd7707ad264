"""TencentARC/SEED-Voken, Open-MAGVIT2: a small `VQModel` under the strategy of its configurations; LPIPS is zero."""

import sys
import types

from tests.audits.common import BATCH, BatchNormOfAllRanks, checkout, cpu, random_rows, zero_loss
from tests.audits.lightning2 import fit

sys.path.insert(0, str(checkout("seedvoken")))
main = types.ModuleType("main")  # the model imports a function from this script
main.instantiate_from_config = lambda config: config

if __name__ == "__main__":
    sys.modules["main"] = main
    with cpu("autoencoder", "discriminator"):
        import lightning
        from src.Open_MAGVIT2.models.lfqgan import VQModel
        from src.Open_MAGVIT2.modules.losses import vqperceptual

        vqperceptual.LPIPS = zero_loss
        weights = {
            "disc_weight": 0.8,
            "gen_loss_weight": 0.1,
            "codebook_weight": 0.0,
            "lecam_loss_weight": 0.0,
            "commit_weight": 0.25,
        }
        sizes = {"disc_ndf": 8, "disc_num_layers": 1, "perceptual_weight": 0.0}
        loss = vqperceptual.VQLPIPSWithDiscriminator(disc_start=0, codebook_enlarge_ratio=0, **weights, **sizes)
        widths = {"ch": 32, "ch_mult": [1, 2], "num_res_blocks": 1, "resolution": 16}
        widths |= {"double_z": False, "z_channels": 4, "in_channels": 3, "out_ch": 3}
        module = VQModel(
            widths,
            loss,
            n_embed=16,
            embed_dim=4,
            sample_minimization_weight=1.0,
            batch_maximization_weight=1.0,
            learning_rate=1e-3,
            scheduler_type="None",
            use_ema=False,
        )
        BatchNormOfAllRanks.converted(module.loss)
        module.log_dict = lambda *args, **kwargs: None
        rows = [{"image": row} for row in random_rows(BATCH * 6, 16, 16, 3) * 2 - 1]
        fit(lightning, module, rows)
