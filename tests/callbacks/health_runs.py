"""Trainings of each kind of health, most of them broken on purpose, and what a `Watch` measures in them.

    python -m tests.callbacks.health_runs [NAME ...]

trains them and writes `health_runs.json` beside this file: about five minutes on two free cores for those of 16 pixels.
"""

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import torch

from lit_gans import build, compose
from lit_gans.callbacks import Watch
from lit_gans.data.sources.digits import Digits

FILE = Path(__file__).with_suffix(".json")
EVERY = 50  # iterations between two looks

PIXELS = "data.image_size=16"  # half of those of the experiments
SMALL = (PIXELS, "data.batch_size=32", "model.generator_width=8", "model.discriminator_width=8")
DCGAN = ("experiment=dcgan_digits", *SMALL)
CLASSES = ("experiment=dcgan_digits_classes", *SMALL)
MLP = (
    "experiment=gan_digits",
    PIXELS,
    "data.batch_size=32",
    "model.generator_width=64",
    "model.discriminator_width=64",
)
WGAN = ("experiment=wgan_gp_digits", *SMALL, "model.n_critic=2")


def rates(generator, discriminator):
    return f"model.generator_optimizer.lr={generator}", f"model.discriminator_optimizer.lr={discriminator}"


def growing(times):
    schedule = f"schedule={{_target_: lit_gans.LinearSchedule, start: 1.0, end: {times}.0, over: 400}}"
    return f"+model.generator_optimizer.{schedule}", f"+model.discriminator_optimizer.{schedule}"


class Few(Digits):
    """Eight of the digits, again and again."""

    def load(self):
        images, labels = super().load()
        return images[::600][:8].repeat(8, 1, 1, 1), labels[::600][:8].repeat(8)


def without_latents(module):
    """Lets the generator of a GAN see the class alone."""
    generate = module.generate
    module.generate = lambda network, batch: generate(network, {**batch, "latents": 0 * batch["latents"]})


# the kind of health from `since` on, and the iterations and settings of the training
RUNS = {
    "healthy": ("learning", 0, 1500, DCGAN, {}),
    "healthy with classes": ("learning", 0, 800, CLASSES, {}),
    "healthy critic": ("learning", 0, 800, WGAN, {}),
    "learning rate of 1e-7": ("stalled", 550, 700, (*DCGAN, *rates(1e-7, 1e-7)), {}),
    "generator ignores latents": ("collapsing", 600, 1500, CLASSES, {"rig": without_latents}),
    "strong discriminator": ("discriminator wins", 600, 900, (*DCGAN, *rates(1e-5, 1e-2), "model.r1_gamma=0"), {}),
    "critic of 100 times the learning rate": ("learning", 600, 900, (*WGAN, *rates(1e-1, 1e-1)), {}),
    "growing learning rate": ("diverging", 650, 700, (*MLP, *growing(300)), {}),
    "eight images": ("memorizing", 1200, 1500, DCGAN, {"data": Few}),
    "dcgan_digits": ("learning", 0, 600, ("experiment=dcgan_digits", PIXELS), {}),
    "wgan_gp_digits": ("learning", 0, 400, ("experiment=wgan_gp_digits", PIXELS), {}),
    "sngan_digits": ("learning", 0, 600, ("experiment=sngan_digits", PIXELS), {}),
    "r3gan_digits": ("learning", 0, 800, ("experiment=r3gan_digits", PIXELS), {}),
    "pix2pix_digits": ("learning", 0, 600, ("experiment=pix2pix_digits", PIXELS), {}),
}


def train(name, every=EVERY):
    """Trains a run and returns its looks."""
    _, _, steps, overrides, rigged = RUNS[name]
    alone = ("metrics=none", "logger=none", "callbacks=none", "trainer.accelerator=cpu", f"trainer.max_steps={steps}")
    with tempfile.TemporaryDirectory() as folder:
        module, data, trainer = build(compose(*overrides, *alone, f"trainer.default_root_dir={folder}"))
        rigged.get("rig", lambda module: None)(module)
        if "data" in rigged:
            data = rigged["data"](image_size=data.image_size, channels=1, batch_size=data.batch_size)
        watch = Watch(every_n_steps=every, minutes=1e-9)  # compares with training images at every look
        trainer.callbacks.append(watch)
        trainer.fit(module, datamodule=data)
    return watch.looks


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or RUNS:
        looks = train(name)
        recorded = json.loads(FILE.read_text()) if FILE.exists() else {}
        FILE.write_text(json.dumps(recorded | {name: [asdict(look) for look in looks]}, indent=1) + "\n")
        print(name, len(looks), flush=True)
