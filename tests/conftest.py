"""Shapes in signatures are checked under test; small fixtures that the tests share."""

import os
import signal
import tempfile

from jaxtyping import install_import_hook

import tests.typecheck  # noqa: F401 - the hook looks it up by its name

install_import_hook("lit_gans", "tests.typecheck.check")

import pytest  # noqa: E402
import torch  # noqa: E402
from lightning.pytorch import Trainer  # noqa: E402

from lit_gans.common.size import sides  # noqa: E402
from lit_gans.config.registry import gans  # noqa: E402
from lit_gans.data.base import PairedData  # noqa: E402

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's jobs in the background ignore it, and pass that on
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that tests start: threads that spin slow all others
os.environ["LIT_GANS_CACHE"] = tempfile.mkdtemp()  # also of the processes that tests start


LAUNCH = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "RANK", "LOCAL_RANK", "WORLD_SIZE")


@pytest.fixture(autouse=True)
def nothing_of_a_training_remains():
    """Ends the process group that a training in this process began, which the next test would gather over, and removes
    the variables that its launcher has set, which processes of the next test would connect to.
    """
    before = {name: os.environ.get(name) for name in LAUNCH}
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    for name, value in before.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})


class RandomImages(PairedData):
    """Seeded random images of 10 classes, paired with others: enough for anything that needs no picture."""

    num_images = 48
    num_classes = 10

    def pairs(self, held_out):
        generator = torch.Generator().manual_seed(int(held_out))
        shape = (2, self.num_images, self.channels, *sides(self.image_size))
        images, pictures = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        return {"input": pictures, "image": images}

    def make_dataset(self):
        dataset = super().make_dataset()
        dataset.labels = torch.arange(self.num_images) % 10
        return dataset


SMALL = {"image_size": 16, "channels": 1, "latent_dim": 6}
WIDTHS = {"generator_width": 4, "discriminator_width": 4}
SETTINGS = {
    "sngan": {"spectral_generator": True},
    "wgan_gp": {"critic_norm": "layer"},
    "pix2pix": {"patch_depth": 2},
}


@pytest.fixture
def tiny_gan():
    """Makes a registered GAN with tiny networks: `tiny_gan("dcgan", n_critic=2)`."""
    return lambda name="dcgan", **settings: gans()[name](**{**SMALL, **WIDTHS, **SETTINGS.get(name, {}), **settings})


@pytest.fixture
def random_images():
    """Makes a datamodule of random images: `random_images(batch_size=8)`."""
    return lambda **settings: RandomImages(**{"image_size": 16, "channels": 1, "batch_size": 8, **settings})


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs a command line in this process and returns its exit code, what it printed, and its errors."""
    from lit_gans.cli import main as cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = cli.run([*arguments])
        except SystemExit as stopped:  # the Lightning CLI, and a sweep that a signal ends
            code = stopped.code
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def train(command):
    """Runs `lit-gans train` in this process and returns its exit code; what it printed is in `train.out` and `.err`."""

    def run(*overrides: str) -> int:
        code, run.out, run.err = command("train", *overrides)
        return code

    return run


@pytest.fixture
def fit(tmp_path):
    """Trains on the CPU for some iterations, without logger, bar and checkpoints, and returns the trainer."""

    def run(module, data, max_steps, resume=None, **arguments):
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = Trainer(
            max_steps=max_steps,
            max_epochs=-1,
            accelerator="cpu",
            enable_model_summary=False,
            **{"default_root_dir": tmp_path, **quiet, **arguments},
        )
        trainer.fit(module, datamodule=data, ckpt_path=resume, weights_only=True)
        return trainer

    return run
