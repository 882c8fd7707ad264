from unittest.mock import create_autospec

import pytest
import torch
from lightning.pytorch import Trainer

from lit_gans.callbacks import RunConfig
from lit_gans.checkpoints.format import flat, read_checkpoint
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


def trainer_with(**attributes):
    trainer = create_autospec(Trainer, instance=True)
    for name, value in attributes.items():
        setattr(trainer, name, value)
    return trainer


@pytest.mark.parametrize("is_rank_zero", [True, False])
def test_only_rank_zero_writes(tiny_gan, tmp_path, is_rank_zero):
    trainer = trainer_with(is_global_zero=is_rank_zero, default_root_dir=str(tmp_path))
    RunConfig(CONFIG, {"config.yaml": "x"}).on_train_start(trainer, tiny_gan())
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"] * is_rank_zero


@pytest.mark.parametrize("change", [{"seed": 4}, {"model": CONFIG["model"] | {"betas": [0.5, 0.9]}}, {"more": None}])
def test_the_first_difference_between_ranks_is_named(tiny_gan, monkeypatch, change):
    callback, module = RunConfig(CONFIG, {}), tiny_gan()

    def setup(*configs):
        def all_gather_object(gathered, mine):
            assert mine == flat(CONFIG)
            gathered[:] = map(flat, configs)

        monkeypatch.setattr(torch.distributed, "all_gather_object", all_gather_object)
        callback.setup(trainer_with(world_size=len(configs)), module, "fit")

    reordered = {name: CONFIG[name] for name in reversed(CONFIG)}
    setup(CONFIG, reordered, CONFIG)
    if change == {"more": None}:
        return setup(CONFIG, CONFIG | change)
    name = {"seed": "seed=4 where rank 0 has 3", "model": r"model.betas=\[0.5, 0.9\] where rank 0"}[next(iter(change))]
    with pytest.raises(RefusedInput, match=f"rank 2 has {name}"):
        setup(CONFIG, CONFIG, CONFIG | change)
