"""tianweiy/DMD2, main/edm/train_edm.py: its `Trainer`, with a small network instead of EDM's; images are random."""

import os
import sys
from types import SimpleNamespace

import torch

from tests.audits.common import BATCH, LOCAL_BATCH, absent, checkout, cpu, in_order, random_rows, run
from tests.strategies.foreign import edm

ROOT = checkout("dmd2")
sys.path.insert(0, str(ROOT))


class Images(torch.utils.data.Dataset):
    def __init__(self, path):
        self.images = random_rows(BATCH * 6, 3, 8, 8)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return {"images": self.images[index], "class_labels": torch.tensor([index % 10])}


ARGUMENTS = {
    **edm.ARGUMENTS,
    **{"dataset_name": "cifar10", "resolution": 8, "label_dim": 10, "conditioning_sigma": 80.0, "use_x0": True},
    **{"batch_size": LOCAL_BATCH, "train_iters": 100, "warmup_step": 0, "seed": 0, "num_workers": 0},
    **{"generator_lr": 1e-3, "guidance_lr": 1e-3, "max_grad_norm": 1e9, "dfake_gen_update_ratio": 2},
    **{"cls_loss_weight": 0.01, "gen_cls_loss_weight": 3e-3, "use_fp16": False, "gradient_accumulation_steps": 1},
    **{"log_iters": 10**9, "wandb_iters": 10**9, "max_checkpoint": 1, "no_save": True, "delete_ckpts": False},
    **dict.fromkeys(("ckpt_only_path", "generator_ckpt_path", "checkpoint_path")),
    **dict.fromkeys(("real_image_path", "cache_dir", "wandb_entity", "wandb_project", "wandb_name"), ""),
}

if __name__ == "__main__":
    absent("wandb", "lmdb", "imageio", "imageio.v2")
    with cpu("guidance", "generator", interleaved=False):
        in_order()
        sys.modules |= edm.replaced_modules()
        script = run(ROOT / "main/edm/train_edm.py", name="train_edm")
        script["LMDBDataset"] = Images
        values = ARGUMENTS | {"output_path": os.environ["AUDIT_OUT"], "log_path": os.environ["AUDIT_OUT"]}
        trainer = script["Trainer"](SimpleNamespace(**values))
        trainer.step = 1  # not 0, because it logs at step 0
        trainer.train()
