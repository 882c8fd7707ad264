"""A LightningCLI of a user's own script, and what it leaves."""

import sys
from pathlib import Path

import pytest
import torch
import yaml
from lightning.pytorch.cli import LightningCLI

from lit_gans import DCGAN, R3GAN, Digits, load
from lit_gans.common.errors import RefusedInput
from lit_gans.training.augmentation import Adaptive
from lit_gans.training.optim import OptimizerConfig
from lit_gans.training.schedules import CosineSchedule, LinearSchedule

SMALL = ["--model.generator_width=4", "--model.discriminator_width=4", "--model.image_size=32", "--model.channels=1"]
SMALL += ["--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false"]
GENERATOR = "--model.generator_optimizer"
GAMMA = "--model.r1_gamma"
BETA = "{class_path: LinearSchedule, init_args: {start: 0.5, end: 0.9}}"


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Runs `LightningCLI(model, data)` with arguments, and returns it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)

    def run(*arguments, model=DCGAN, data=Digits, **settings):
        monkeypatch.setattr(sys, "argv", ["script.py", *arguments])
        return LightningCLI(model, data, seed_everything_default=0, **settings)

    return run


def parsed(script, *arguments, model=DCGAN):
    return script(*SMALL, *arguments, model=model, run=False).model


@pytest.mark.runs
def test_a_script_trains_and_reads_its_own_configuration_again(script, capsys):
    options = [
        f"{GENERATOR}.betas",
        "[0,0.99]",
        f"{GENERATOR}.schedule",
        "LinearSchedule",
        "--model.r1_gamma",
        "LinearSchedule",
    ]
    options += ["--model.augmentation", "Adaptive", "--model.augmentation.target", "0"]
    first = script("fit", *SMALL, *options, "--trainer.max_steps=2").model
    written = Path("lightning_logs/version_0/config.yaml")
    again = script("fit", "--config", str(written)).model
    assert Path("lightning_logs/version_1/config.yaml").read_text() == written.read_text()
    assert again.hparams == first.hparams
    torch.testing.assert_close(again.state_dict(), first.state_dict(), rtol=0, atol=0)
    assert first.generator_optimizer == OptimizerConfig("Adam", lr=2e-4, betas=(0, 0.99), schedule=LinearSchedule())
    assert (first.r1_gamma, first.augmentations.augmenter) == (LinearSchedule(), Adaptive(target=0))
    assert yaml.safe_load(written.read_text())["model"]["generator_optimizer"]["betas"] == [0.0, 0.99]
    assert "Unable to serialize" not in written.read_text()


@pytest.mark.runs
def test_the_checkpoint_of_a_script_is_found_in_its_folder(script, ran):
    module = script("fit", *SMALL, "--trainer.max_steps=1").model
    Path("lightning_logs/version_0/checkpoints").joinpath("epoch=0-step=1.ckpt").stat()
    loaded = load("lightning_logs/version_0")
    torch.testing.assert_close(loaded.state_dict(), module.state_dict(), rtol=0, atol=0)
    assert "lightning_logs/version_0/generated/grid.png" in ran(
        "sample", "checkpoint=lightning_logs/version_0", "num=1"
    )
    ran("report", "run=lightning_logs/version_0", "num=1")
    ran("export", "checkpoint=lightning_logs/version_0")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([GENERATOR, "SGD"], OptimizerConfig("SGD")),
        ([GENERATOR, "torch.optim.SGD"], OptimizerConfig("SGD")),
        ([f"{GENERATOR}.lr", "1e-3"], OptimizerConfig("Adam", lr=1e-3, betas=(0.5, 0.999))),
        (
            [f"{GENERATOR}.betas=[0,0.99]", f"{GENERATOR}.eps=1"],
            OptimizerConfig("Adam", lr=2e-4, betas=(0, 0.99), eps=1),
        ),
        ([GENERATOR, "SGD", f"{GENERATOR}.momentum", "0.5"], OptimizerConfig("SGD", momentum=0.5)),
        ([f"{GENERATOR}.name=SGD", f"{GENERATOR}.momentum=0.5", f"{GENERATOR}.nesterov=true"], None),
        ([f"{GENERATOR}.name=Adam"], OptimizerConfig("Adam", lr=2e-4, betas=(0.5, 0.999))),
        ([GENERATOR, "{name: SGD, lr: 1e-1}"], OptimizerConfig("SGD", lr=0.1)),
        ([GENERATOR, "{lr: 1e-1}"], OptimizerConfig("Adam", lr=0.1, betas=(0.5, 0.999))),
        ([GENERATOR, "{class_path: torch.optim.SGD, init_args: {lr: 1}}"], OptimizerConfig("SGD", lr=1)),
        (
            [f"{GENERATOR}.schedule=LinearSchedule", f"{GENERATOR}.schedule.end=0.5"],
            OptimizerConfig("Adam", lr=2e-4, betas=(0.5, 0.999), schedule=LinearSchedule(end=0.5)),
        ),
        (
            [f"{GENERATOR}.betas", f"[{BETA}, 0.999]"],
            OptimizerConfig("Adam", lr=2e-4, betas=(LinearSchedule(0.5, 0.9), 0.999)),
        ),
        (
            [GENERATOR, f"{{name: Adam, betas: [{BETA}, 0.99]}}"],
            OptimizerConfig("Adam", betas=(LinearSchedule(0.5, 0.9), 0.99)),
        ),
    ],
)
def test_an_optimizer_is_chosen_by_name_mapping_or_argument(script, arguments, expected):
    expected = expected or OptimizerConfig("SGD", momentum=0.5, nesterov=True)
    module = parsed(script, *arguments)
    assert module.generator_optimizer == expected
    assert module.discriminator_optimizer == OptimizerConfig("Adam", lr=2e-4, betas=(0.5, 0.999)), "not changed with it"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([f"{GENERATOR}.learning_rate=1"], "learning_rate: Adam has no such argument"),
        ([GENERATOR, "Adan"], "torch.optim has no such optimizer; did you mean 'Adam'"),
        ([f"{GENERATOR}.lr=true"], "lr=True must be a number"),
        ([GENERATOR, "[3]"], "expected a name, or a mapping of arguments"),
        (["--model.r1_gamma=true"], "r1_gamma"),
        (
            [f"{GENERATOR}.betas", "[{class_path: Linear}, 0.9]"],
            "there is no such schedule; did you mean 'LinearSchedule'",
        ),
        (
            [GENERATOR, "{betas: [{class_path: LinearSchedule, init_args: {strt: 1}}, 0.9]}"],
            "strt: LinearSchedule has no such argument; did you mean 'start'",
        ),
        ([f"{GENERATOR}.betas", "[0.5, 0.9"], "betas=[0.5, 0.9 is not valid: while parsing a flow sequence"),
        ([f"{GENERATOR}.schedule", "Nope"], "Nope: there is no such schedule; valid names: Cons"),
        (
            [f"{GENERATOR}.schedule.over", "5"],
            "over: ConstantSchedule has no arguments: first choose a schedule, such as LinearSchedule",
        ),
    ],
)
def test_a_wrong_optimizer_of_a_script_is_named(script, capsys, arguments, sentence):
    with pytest.raises(SystemExit):
        parsed(script, *arguments)
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], CosineSchedule(0.05, 0.005, over=20_000_000, unit="images")),
        ([GAMMA, "LinearSchedule"], LinearSchedule()),
        ([GAMMA, "lit_gans.LinearSchedule", f"{GAMMA}.end=1e-3"], LinearSchedule(end=0.001)),
        ([f"{GAMMA}.init_args.end=0"], CosineSchedule(0.05, 0.0, over=20_000_000, unit="images")),
        ([GAMMA, "{class_path: CosineSchedule, init_args: {over: 8}}", f"{GAMMA}.over=null"], CosineSchedule()),
        ([GAMMA, "0.5"], 0.5),
    ],
)
@pytest.mark.parametrize("by_name", [False, True])
def test_a_schedule_replaces_or_changes_the_default_schedule(script, arguments, expected, by_name):
    """Another class starts with its own defaults, not with the arguments of the schedule that it replaces."""
    small = ["--model.generator_width=4", "--model.discriminator_width=4", "--trainer.accelerator=cpu"]
    classes = {"model": None, "data": None} if by_name else {"model": R3GAN}
    chosen = ["--model", "R3GAN", "--data", "Digits"] if by_name else []
    module = script(*chosen, *small, *arguments, run=False, **classes).model
    assert module.r1_gamma == expected
    assert module.r2_gamma == CosineSchedule(0.05, 0.005, over=20_000_000, unit="images"), "not changed with it"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([GAMMA, "Nope"], "Nope: there is no such schedule; valid names: ConstantSchedule"),
        ([f"{GAMMA}.end", "1"], "end: a number has no arguments: first choose a schedule, such as LinearSchedule"),
        ([GAMMA, "LinearSchedule", f"{GAMMA}.ends=1"], "ends: LinearSchedule has no such argument; did you mean 'end'"),
        ([GAMMA, "LinearSchedule", f"{GAMMA}.end=x"], "end='x' must be a number"),
    ],
)
def test_an_invalid_schedule_of_a_script_is_an_error(script, capsys, arguments, sentence):
    with pytest.raises(SystemExit):
        parsed(script, *arguments)
    assert sentence in capsys.readouterr().err


def test_the_single_optimizer_of_lightning_s_command_line_is_refused(script):
    with (
        pytest.warns(UserWarning, match="`DCGAN.configure_optimizers` will be overridden"),
        pytest.raises(
            RefusedInput, match=r"--optimizer and .* of LightningCLI .*: use --model.generator_optimizer NAME"
        ),
    ):
        script("fit", *SMALL, "--optimizer", "SGD", "--optimizer.lr", "0.1", "--trainer.max_steps=1")


def test_the_scheduler_of_lightning_s_command_line_is_refused_rather_than_ignored(script):
    with pytest.raises(RefusedInput, match=r"--lr_scheduler of LightningCLI .* and their schedule"):
        script("fit", *SMALL, "--lr_scheduler", "StepLR", "--lr_scheduler.step_size", "1", "--trainer.max_steps=1")


def test_schedules_and_defaults_of_other_gans_are_read_again(script, capsys):
    with pytest.raises(SystemExit) as end:
        script("fit", "--print_config", model=R3GAN)
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert "Unable to serialize" not in printed
    written = {key: value for key, value in yaml.safe_load(printed).items() if key in ("model", "data")}
    Path("config.yaml").write_text(yaml.safe_dump(written))
    small = ["--model.generator_width=4", "--model.discriminator_width=4", "--trainer.accelerator=cpu"]
    again = script("--config=config.yaml", *small, model=R3GAN, run=False).model
    default = R3GAN(generator_width=4, discriminator_width=4)
    assert again.hparams == default.hparams


@pytest.mark.parametrize(("model", "data"), [("DCGAN", "Digits"), ("lit_gans.DCGAN", "lit_gans.Digits")])
def test_a_script_takes_classes_by_name(script, model, data):
    chosen = ["--model", model, "--data", data, *SMALL, f"{GENERATOR}.lr=1e-3"]
    cli = script(*chosen, model=None, data=None, run=False)
    assert (type(cli.model), type(cli.datamodule)) == (DCGAN, Digits)
    assert cli.model.generator_optimizer == OptimizerConfig("Adam", lr=1e-3, betas=(0.5, 0.999)), (
        "the class's own betas"
    )
