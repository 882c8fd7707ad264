"""tianweiy/DMD2, main/edm/train_edm.py: its `Trainer`, with a small network instead of EDM's; images are random."""

import io
import os
import pickle
import sys
from types import ModuleType, SimpleNamespace

import torch
from torch import nn

from tests.audits.common import BATCH, LOCAL_BATCH, absent, checkout, cpu, in_order, run

ROOT = checkout("dmd2")
sys.path.insert(0, str(ROOT))


class Denoiser(nn.Module):
    """Small network with the arguments of EDM's network."""

    def __init__(self):
        super().__init__()
        self.model = nn.Module()
        self.model.map_augment = None
        self.begin, self.end = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(768, 3, 1)
        self.condition, self.bottleneck = nn.Linear(11, 8), nn.Conv2d(8, 768, 1)

    def forward(self, images, sigma, labels, return_bottleneck=False):
        condition = self.condition(torch.cat([sigma.reshape(-1, 1).log(), labels], dim=1))
        features = self.bottleneck(torch.tanh(self.begin(images) + condition[:, :, None, None]))
        return features if return_bottleneck else self.end(features)


class Images(torch.utils.data.Dataset):
    def __init__(self, path):
        self.images = torch.rand(BATCH * 6, 3, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return {"images": self.images[index], "class_labels": torch.tensor([index % 10])}


ARGUMENTS = {
    **{
        "model_id": "",
        "sigma_data": 0.5,
        "sigma_min": 0.002,
        "sigma_max": 80.0,
        "rho": 7.0,
        "conditioning_sigma": 80.0,
    },
    **{"num_train_timesteps": 1000, "min_step_percent": 0.02, "max_step_percent": 0.98, "dataset_name": "cifar10"},
    **{"gan_classifier": True, "diffusion_gan": True, "diffusion_gan_max_timestep": 1000, "initialie_generator": True},
    **{"batch_size": LOCAL_BATCH, "resolution": 8, "label_dim": 10, "train_iters": 100, "warmup_step": 0, "seed": 0},
    **{"generator_lr": 1e-3, "guidance_lr": 1e-3, "max_grad_norm": 1e9, "dfake_gen_update_ratio": 2, "num_workers": 0},
    **{
        "cls_loss_weight": 0.01,
        "gen_cls_loss_weight": 3e-3,
        "log_iters": 10**9,
        "wandb_iters": 10**9,
        "max_checkpoint": 1,
    },
    **{
        "ckpt_only_path": None,
        "generator_ckpt_path": None,
        "checkpoint_path": None,
        "real_image_path": "",
        "cache_dir": "",
    },
    **{
        "delete_ckpts": False,
        "use_fp16": False,
        "gradient_accumulation_steps": 1,
        "wandb_entity": "",
        "wandb_project": "",
    },
    **{"wandb_name": "", "no_save": True, "use_x0": True},
}

if __name__ == "__main__":
    absent("wandb", "lmdb", "imageio", "imageio.v2")
    dnnlib, networks, pickled = ModuleType("dnnlib"), ModuleType("main.edm.edm_network"), pickle.dumps({})
    with cpu("guidance", "generator", interleaved=False):
        in_order()
        network = Denoiser()
        dnnlib.util = SimpleNamespace(open_url=lambda _: io.BytesIO(pickled))
        pickle.load = lambda file, **kwargs: {"ema": network}
        networks.get_edm_network = lambda _: Denoiser()
        sys.modules |= {"dnnlib": dnnlib, networks.__name__: networks}
        script = run(ROOT / "main/edm/train_edm.py", name="train_edm")
        script["LMDBDataset"] = Images
        values = ARGUMENTS | {"output_path": os.environ["AUDIT_OUT"], "log_path": os.environ["AUDIT_OUT"]}
        trainer = script["Trainer"](SimpleNamespace(**values))
        trainer.step = 1  # not 0, because it logs at step 0
        trainer.train()
