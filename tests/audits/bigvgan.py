"""NVIDIA/BigVGAN, train.py: its function `train`, with narrow networks; the dataset has random audio."""

import json
import os
import sys
from types import SimpleNamespace

import torch
from torch.utils.data import Dataset

from tests.audits.common import BATCH, LOCAL_BATCH, RANK, absent, checkout, cpu, run

ROOT = checkout("bigvgan")
sys.path.insert(0, str(ROOT))


class Audio(Dataset):
    """Pairs of a mel spectrogram and audio, as MelDataset returns them."""

    def __init__(self, files, h, *args, **kwargs):
        self.h, self.name = h, "random"

    def __len__(self):
        return BATCH * 6

    def __getitem__(self, index):
        from meldataset import mel_spectrogram

        generator = torch.Generator().manual_seed(index)
        audio = torch.rand(1, self.h.segment_size, generator=generator, dtype=torch.float64) - 0.5
        h = self.h
        mel = mel_spectrogram(audio, h.n_fft, h.num_mels, h.sampling_rate, h.hop_size, h.win_size, h.fmin, h.fmax)
        return mel[0], audio[0], str(index), mel[0]


if __name__ == "__main__":
    absent("pesq", "auraloss")
    h = json.loads((ROOT / "configs/bigvgan_22khz_80band.json").read_text())
    h |= {
        "num_gpus": 2,
        "batch_size": LOCAL_BATCH,
        "num_workers": 0,
        "upsample_initial_channel": 16,
        "upsample_rates": [4, 4],
        "upsample_kernel_sizes": [8, 8],
        "resblock_kernel_sizes": [3],
        "resblock_dilation_sizes": [[1, 3, 5]],
        "discriminator_channel_mult": 0.0625,
        "resolutions": [[64, 16, 64], [32, 8, 32], [128, 32, 128]],
        "mpd_reshapes": [2, 3],
        "segment_size": 256,
        "n_fft": 64,
        "hop_size": 16,
        "win_size": 64,
        "num_mels": 8,
        "fmax": None,
        "use_cuda_kernel": False,
        "learning_rate": 1e-3,
    }
    a = SimpleNamespace(
        checkpoint_path=os.environ["AUDIT_OUT"] + "/checkpoints",
        training_epochs=9,
        fine_tuning=False,
        input_mels_dir="",
        save_audio=False,
        freeze_step=0,
        evaluate=False,
        debug=True,
        skip_seen=True,
        stdout_interval=10**9,
        checkpoint_interval=10**9,
        summary_interval=10**9,
        validation_interval=10**9,
    )
    with cpu("discriminators", "generator"):
        from env import AttrDict

        script = run(ROOT / "train.py", name="bigvgan_train")
        script["MelDataset"] = Audio
        script["get_dataset_filelist"] = lambda a: ([], [], [])
        os.makedirs(a.checkpoint_path, exist_ok=True)
        script["train"](RANK, a, AttrDict(h))
