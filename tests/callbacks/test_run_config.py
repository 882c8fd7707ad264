import pytest

from lit_gans.callbacks import RunConfig
from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.common.errors import RefusedInput

CONFIG = {"seed": 3, "model": {"_target_": "lit_gans.models.dcgan.DCGAN", "betas": [0.5, 0.999]}, "init_from": None}


def test_is_written_when_the_training_begins_and_kept_in_checkpoints(tiny_gan, random_images, fit, tmp_path):
    callback = RunConfig(CONFIG, {"config.yaml": "seed: 3\n", "deeper/run.yaml": "two\n"})
    trainer = fit(tiny_gan(), random_images(), max_steps=1, callbacks=[callback])
    assert (tmp_path / "config.yaml").read_text() == "seed: 3\n"
    assert (tmp_path / "deeper" / "run.yaml").read_text() == "two\n"
    trainer.save_checkpoint(tmp_path / "some.ckpt")
    mark = read_checkpoint(tmp_path / "some.ckpt")["lit_gans"]
    counted = {"images": 8}  # what schedules count
    assert mark == {"config": CONFIG, "format_version": 1, "class_path": "lit_gans.models.dcgan.DCGAN", **counted}


def test_a_refused_run_writes_nothing(tiny_gan, random_images, fit, tmp_path):
    with pytest.raises(RefusedInput, match="image_size"):
        fit(tiny_gan(), random_images(image_size=32), max_steps=1, callbacks=[RunConfig(CONFIG, {"config.yaml": "x"})])
    assert not (tmp_path / "config.yaml").exists()


@pytest.mark.parametrize("now", [None, "zoo/other"])
def test_a_resumed_run_keeps_the_origin_of_its_networks(tiny_gan, random_images, fit, tmp_path, now):
    origin = {"init_from": "zoo/dcgan_digits"}
    fit(tiny_gan(), random_images(), max_steps=1, callbacks=[RunConfig(CONFIG | origin)]).save_checkpoint(
        tmp_path / "1.ckpt"
    )
    callback = RunConfig(CONFIG | {"init_from": now})
    trainer = fit(tiny_gan(), random_images(), 2, tmp_path / "1.ckpt", callbacks=[callback])
    trainer.save_checkpoint(tmp_path / "2.ckpt")
    assert read_checkpoint(tmp_path / "2.ckpt")["lit_gans"]["config"] == CONFIG | origin
