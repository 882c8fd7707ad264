"""A run of a tiny GAN, for the commands that take checkpoints."""

import pytest

from lit_gans.callbacks import EMA


@pytest.fixture
def saved(tiny_gan, random_images, fit, tmp_path):
    """Trains a tiny GAN for an iteration, writes its checkpoint into a run's folder and returns its path."""

    def make(name="dcgan", data=None, **settings):
        module = tiny_gan(name, n_critic=1, **settings)
        trainer = fit(module, data or random_images(), max_steps=1, callbacks=[EMA()])
        path = tmp_path / "run" / "checkpoints" / "last.ckpt"
        trainer.save_checkpoint(path)
        return str(path)

    return make
