"""Schedules by hand, and in the training: weights, learning rates and betas, counted in iterations and images."""

import math
import sys

import pytest
from torch import nn

from lit_gans import build, compose, load
from lit_gans.checkpoints.format import to_plain
from lit_gans.common.errors import RefusedInput
from lit_gans.training.optim import OptimizerConfig
from lit_gans.training.schedules import (
    ConstantSchedule,
    ConstantThenLinearSchedule,
    CosineSchedule,
    LinearSchedule,
    Progress,
    Schedule,
    is_zero,
)

COSINE = CosineSchedule(0.05, 0.005, over=1000, unit="images")


def test_schedules_at_known_iterations():
    def values(schedule, *iterations):
        return [schedule.at(Progress(iteration, total=10)) for iteration in iterations]

    assert values(ConstantSchedule(), 0, 5, 10) == [1, 1, 1]
    assert values(LinearSchedule(), 0, 5, 10, 11) == [1, 0.5, 0, 0]
    assert values(LinearSchedule(2.0, 10.0, over=4), *range(6)) == [2, 4, 6, 8, 10, 10]
    assert values(CosineSchedule(), 0, 5, 10) == pytest.approx([1, 0.5, 0])
    assert not is_zero(LinearSchedule(0.0, 1.0))
    assert values(ConstantThenLinearSchedule(0.5), 0, 4, 5, 8, 10) == [1, 1, 1, pytest.approx(0.4), 0]


def test_cosine_at_known_points():
    found = [COSINE.at(Progress(7, images)) for images in (0, 250, 500, 1000, 5000)]
    quarter = 0.005 + 0.045 * (1 + math.sqrt(0.5)) / 2
    assert found == pytest.approx([0.05, quarter, 0.0275, 0.005, 0.005], rel=1e-12)


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        ("LinearSchedule", LinearSchedule()),
        ("lit_gans.LinearSchedule", LinearSchedule()),
        ({"class_path": "CosineSchedule", "init_args": {"over": 5, "end": "1e-3"}}, CosineSchedule(end=0.001, over=5)),
        (to_plain(COSINE), COSINE),
    ],
)
def test_a_class_or_a_mapping_describes_a_schedule(plain, expected):
    assert Schedule.from_plain(plain) == expected


@pytest.mark.parametrize(
    ("plain", "sentence"),
    [
        ("linear", "linear: there is no such schedule; valid names: ConstantSchedule"),
        ("lit_gans.DCGAN", "lit_gans.DCGAN: there is no such schedule"),
        ("json.tool.LinearSchedule", "there is no such schedule"),
        ({"start": 1.0}, "class_path is missing"),
        ({"class_path": "LinearSchedule", "init_args": {"stop": 0.0}}, "stop: LinearSchedule has no such argument"),
    ],
)
def test_an_invalid_description_is_an_error_and_imports_nothing(plain, sentence):
    sys.modules.pop("json.tool", None)
    with pytest.raises(RefusedInput, match=sentence):
        Schedule.from_plain(plain)
    assert "json.tool" not in sys.modules


def test_a_module_takes_the_description_of_a_schedule(tiny_gan):
    assert tiny_gan(r1_gamma=to_plain(COSINE)).r1_gamma == COSINE


@pytest.mark.parametrize("schedule", [LinearSchedule(), ConstantThenLinearSchedule()])
def test_a_training_without_an_end_is_refused_where_the_rate_depends_on_it(tiny_gan, random_images, fit, schedule):
    module = tiny_gan(generator_optimizer=OptimizerConfig("Adam", lr=1e-3, schedule=schedule))
    with pytest.raises(RefusedInput, match=r"needs trainer\.max_steps"):
        fit(module, random_images(), max_steps=-1)


@pytest.mark.parametrize(
    ("cls", "settings", "sentence"),
    [
        (LinearSchedule, {"over": -1}, "over=-1"),
        (CosineSchedule, {"unit": "images"}, "over=NUMBER"),
        (ConstantThenLinearSchedule, {"constant_share": 1.0}, r"must lie in \[0, 1\)"),
    ],
)
def test_refusals(cls, settings, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        cls(**settings)


def test_a_weight_out_of_range_at_any_end_is_refused(tiny_gan):
    with pytest.raises(RefusedInput, match=r"r1_gamma=-1\.0"):
        tiny_gan(r1_gamma=LinearSchedule(1.0, -1.0))


def test_rates_and_betas_follow_images_of_all_steps(tiny_gan, random_images, fit):
    schedule = CosineSchedule(1.0, 0.25, over=48, unit="images")
    optimizer = OptimizerConfig(
        "Adam", lr=1e-3, betas=(0.0, CosineSchedule(0.9, 0.99, over=48, unit="images")), schedule=schedule
    )
    module, found = tiny_gan(n_critic=2, generator_optimizer=optimizer, discriminator_optimizer=optimizer), []
    module.on_before_optimizer_step = lambda stepped: found.append(
        (module.progress.images, stepped.param_groups[0]["lr"], stepped.param_groups[0]["betas"])
    )
    fit(module, random_images(batch_size=8), max_steps=4)
    for index, (images, rate, betas) in enumerate(found):
        assert images == 16 * (index // 3), "two steps of the discriminator and one of the generator share a progress"
        share = (1 + math.cos(math.pi * images / 48)) / 2
        assert rate == pytest.approx(1e-3 * (0.25 + 0.75 * share))
        assert betas == (0.0, pytest.approx(0.99 - 0.09 * share))


def test_the_number_of_images_survives_a_resume(tiny_gan, random_images, fit, tmp_path):
    schedule = CosineSchedule(0.9, 0.99, over=100, unit="images")
    optimizer = OptimizerConfig("Adam", lr=1e-3, betas=(0.5, schedule), schedule=schedule)
    through, first, second = (tiny_gan("gan", r1_gamma=schedule, generator_optimizer=optimizer) for _ in range(3))
    found = {module: [] for module in (through, first, second)}
    for module, steps in found.items():
        module.on_before_optimizer_step = lambda stepped, module=module, steps=steps: steps.append(
            (module.progress, module.now(module.r1_gamma), *(stepped.param_groups[0][n] for n in ("lr", "betas")))
        )
    fit(through, random_images(), max_steps=4)
    trainer = fit(first, random_images(), max_steps=2)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    fit(second, random_images(), max_steps=4, resume=tmp_path / "half.ckpt")
    assert second.progress.images == 24
    assert found[second] == found[through][4:]


def test_from_the_command_line_and_back_from_a_checkpoint(tmp_path):
    spelled = "{_target_: lit_gans.CosineSchedule, start: 0.05, end: 0.005, over: 1000, unit: images}"
    overrides = ["model=dcgan", "data=digits", f"model.r1_gamma={spelled}", "trainer.max_steps=1", "metrics=none"]
    overrides += [f"model.discriminator_optimizer.betas=[0.0,{spelled}]", "logger=none", "callbacks=none"]
    overrides += ["model.generator_width=4", "model.discriminator_width=4", "data.batch_size=4", "data.image_size=16"]
    module, data, trainer = build(compose(*overrides, f"trainer.default_root_dir={tmp_path}"))
    assert module.r1_gamma == COSINE
    assert module.discriminator_optimizer.options["betas"] == (0.0, COSINE)
    trainer.fit(module, datamodule=data)
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    again = load(tmp_path / "one.ckpt")
    assert (again.r1_gamma, again.discriminator_optimizer.options["betas"]) == (COSINE, (0.0, COSINE))
    assert isinstance(again.generator, nn.Module)
