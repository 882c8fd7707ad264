"""TencentARC/SEED-Voken, Open-MAGVIT2: a small `VQModel` under the strategy of its configurations; LPIPS is zero."""

import sys
import types

from torch.utils.data import DataLoader, DistributedSampler

from tests.audits.common import BATCH, LOCAL_BATCH, RANK, WORLD_SIZE, BatchNormOfAllRanks, checkout, cpu, zero_loss
from tests.audits.lightning1 import random_rows

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
        loader = DataLoader(rows, LOCAL_BATCH, sampler=DistributedSampler(rows, WORLD_SIZE, RANK))

        class Data(lightning.LightningDataModule):
            def train_dataloader(self):
                return loader

            _train_dataloader = train_dataloader

        quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
        strategy = "ddp_find_unused_parameters_true" if WORLD_SIZE > 1 else "auto"
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=WORLD_SIZE,
            strategy=strategy,
            max_epochs=9,
            use_distributed_sampler=False,
            **quiet,
        )
        trainer.fit(module, datamodule=Data())
