"""Trains with diffusers' train_autoencoderkl.py, to compare it with model=autoencoder_kl.

docs/explain/diffusers_autoencoder.md has the commands and the results. Their script runs unedited, on CPU processes.
Three things around it are replaced, since they need a download, a service or a GPU: LPIPS is zero (the script computes
it without gradients, so that it trains nothing), nothing is logged, and batch norm does not become SyncBatchNorm.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, distributed

CONFIG = {
    "_class_name": "AutoencoderKL",
    "block_out_channels": [16, 32, 64],
    "down_block_types": 3 * ["DownEncoderBlock2D"],
    "up_block_types": 3 * ["UpDecoderBlock2D"],
    "latent_channels": 8,
    "norm_num_groups": 8,
}
# the batch and the pixels' loss of experiment=autoencoder_kl_emoji, and the optimizer that its page compares with
OPTIONS = {
    "resolution": 64,
    "train_batch_size": 4,
    "num_train_epochs": 1000,
    "rec_loss": "l1",
    "learning_rate": 1e-3,
    "disc_learning_rate": 1e-3,
    "adam_beta1": 0.5,
    "adam_beta2": 0.9,
    "validation_steps": 1000000,
    "seed": 0,
}


def pictures(folder: str) -> None:
    """Writes the drawings of `data=emoji_lines` at 64x64 into `folder`/train and, every tenth, `folder`/held_out."""
    from lit_gans.data.sources.emoji import Drawings, code_points

    drawings = Drawings(code_points(), 64, (255, 255, 255))
    for index in range(len(drawings)):
        path = Path(folder, "held_out" if index % 10 == 9 else "train", f"{index:04}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        drawings.picture(index, []).save(path)


def train(script: str, folder: str, output: str, *options: str) -> None:
    """Runs their script for STOP_AFTER seconds (240), and prints how far the processes' weights are apart.

    With SHOW=1, prints at each step of the discriminator the norm of the gradient that was left in it, and of its own;
    with ZERO=1 also, that gradient is removed first.
    MODE=fsdp2 or MODE=deepspeed lets accelerate prepare the networks as it would on GPUs.
    """
    import accelerate
    import lpips

    class NoDistance(torch.nn.Module):
        def __init__(self, net: str) -> None:
            super().__init__()

        def forward(self, made: Tensor, real: Tensor) -> Tensor:
            return made.new_zeros(len(made), 1, 1, 1)

    class Watched(accelerate.Accelerator):
        began, steps, left, own = 0.0, 0, 0.0, 0.0

        def __init__(self, **kwargs: object) -> None:
            super().__init__(**{**kwargs, "log_with": None, "cpu": True})
            mode, state = os.environ.get("MODE"), self.state
            if mode == "fsdp2":
                state.fsdp_plugin = accelerate.FullyShardedDataParallelPlugin(fsdp_version=2)
                state.distributed_type = accelerate.DistributedType.FSDP
            elif mode == "deepspeed":
                plugin = accelerate.DeepSpeedPlugin(zero_stage=2)
                state.deepspeed_plugins = {"default": plugin}
                plugin.select(_from_accelerator_state=True)
                state.distributed_type = accelerate.DistributedType.DEEPSPEED

        def backward(self, loss: Tensor, **kwargs: object) -> None:
            self.began = self.began or time.monotonic()
            if "SHOW" not in os.environ:
                return super().backward(loss, **kwargs)
            weights = [*self.unwrap_model(self._models[1]).parameters()]
            if "ZERO" in os.environ:
                for weight in weights:
                    weight.grad = None
            before = [torch.zeros_like(weight) if weight.grad is None else weight.grad.clone() for weight in weights]
            super().backward(loss, **kwargs)
            self.left = norm(before)
            self.own = norm([weight.grad - grad for weight, grad in zip(weights, before, strict=True)])

        def log(self, values: dict[str, float], **kwargs: object) -> None:
            self.steps += 1
            if "SHOW" in os.environ and "disc_loss" in values:
                self.print(f"\nstep {self.steps}: left {self.left:.3g}, own {self.own:.3g}, {values}")
            over = torch.tensor(time.monotonic() - self.began > float(os.environ.get("STOP_AFTER", "240")))
            distributed.broadcast(over, 0)
            if over:
                self.end_training()
                sys.exit()

        def end_training(self) -> None:
            self.print(f"\n{self.steps} steps in {time.monotonic() - self.began:.0f} s")
            for model in map(self.unwrap_model, self._models):
                difference = 0.0
                for parameter in model.parameters():
                    first = parameter.detach().clone()
                    distributed.broadcast(first, 0)
                    difference = max(difference, (parameter.detach() - first).abs().max().item())
                size = sum(parameter.numel() for parameter in model.parameters())
                name, rank = type(model).__name__, self.process_index
                print(f"{name}, {size:,} parameters: those of rank {rank} are {difference:.2g} from those of rank 0")
            if self.is_main_process:
                self.unwrap_model(self._models[0]).save_pretrained(self.project_dir)
            distributed.barrier()

    lpips.LPIPS, accelerate.Accelerator = NoDistance, Watched
    torch.nn.SyncBatchNorm.convert_sync_batchnorm = classmethod(lambda cls, module, process_group=None: module)
    config = Path(f"{output}_config")
    config.mkdir(parents=True, exist_ok=True)
    (config / "config.json").write_text(json.dumps(CONFIG))
    picture = str(next(Path(folder).glob("*.png")))
    paths = {"train_data_dir": folder, "output_dir": output, "model_config_name_or_path": config}
    given = {**OPTIONS, **paths, "validation_image": picture}
    sys.argv = [script, *(f"--{name}={value}" for name, value in given.items()), *options]
    runpy.run_path(script, run_name="__main__")


def norm(gradients: list[Tensor]) -> float:
    """Returns the norm of all numbers."""
    return sum(gradient.square().sum().item() for gradient in gradients) ** 0.5


@torch.no_grad()
def score(folder: str, *trained: str) -> None:
    """Prints PSNR and mean absolute difference of reconstructions without noise, of values from 0 to 1.

    Writes some into reconstructions.png, below the pictures of `folder`.

    Args:
        folder: pictures.
        trained: checkpoints of lit_gans, or folders that `train` wrote.
    """
    from diffusers import AutoencoderKL
    from PIL import Image
    from torchvision.transforms.functional import to_tensor
    from torchvision.utils import save_image

    import lit_gans

    real = torch.stack([to_tensor(Image.open(path).convert("RGB")) for path in sorted(Path(folder).glob("*.png"))])
    rows = [real[::13]]
    for path in trained:
        if Path(path, "diffusion_pytorch_model.safetensors").is_file():
            theirs = AutoencoderKL.from_pretrained(path).eval()
            means = [theirs.encode(images * 2 - 1).latent_dist.mode() for images in real.split(64)]
            made = torch.cat([theirs.decode(mean).sample for mean in means]) / 2 + 0.5
            networks = [theirs]
        else:
            ours = lit_gans.load(path)
            made = torch.cat([ours.decode_latents(ours.encode(images)[0]) for images in real.split(64)])
            networks = [ours.generator, ours.discriminator]
        made = made.clamp(0, 1)
        psnr = -10 * (made - real).square().mean((1, 2, 3)).log10().mean()
        sizes = [sum(weight.numel() for weight in network.parameters()) for network in networks]
        print(f"{path}: PSNR {psnr:.2f} dB, L1 {(made - real).abs().mean():.4f}, parameters {sizes}")
        rows.append(made[::13])
    save_image(torch.cat(rows), "reconstructions.png", nrow=len(rows[0]))


if __name__ == "__main__":
    {"pictures": pictures, "train": train, "score": score}[sys.argv[1]](*sys.argv[2:])
