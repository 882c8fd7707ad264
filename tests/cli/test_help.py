"""`--help` of every command: keys, meanings and defaults are those of its function, and examples that are valid."""

import importlib
import inspect
import subprocess
import sys

import pytest

from lit_gans.cli.command import described, names
from lit_gans.cli.help import as_typed
from lit_gans.config.registry import gans
from lit_gans.config.signatures import meanings, schema

FUNCTIONS = [name for name in names() if name not in ("train", "fit")]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_command_shows_its_keys_with_meanings_and_defaults(command, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = command(name, "--help")
    assert (code, err) == (0, "")
    function = getattr(importlib.import_module(f"lit_gans.cli.commands.{name}"), name)
    keys, examples = out.partition("\nKeys\n")[2].split("\n\nExamples\n")
    said, text = meanings(function), " ".join(keys.split())
    for key, parameter in inspect.signature(function).parameters.items():
        if name != "plan" or key != "overrides":  # which are those of a training
            default = "required" if parameter.default is parameter.empty else f"default: {as_typed(parameter.default)}"
            assert f"{key} [{default}] {said[key]}" in text
    assert examples.rstrip() == "\n".join(f"  {example}" for example in described(name).examples)
    assert max(map(len, out.partition("Examples")[0].splitlines())) <= 80


def test_it_is_quick(tmp_path):
    code = "import sys; from lit_gans.cli import main as cli; sys.argv = ['lit-gans', 'evaluate', '--help']\n"
    code += "try: cli.main()\nexcept SystemExit as stopped: assert stopped.code == 0\n"
    code += "assert not {'torch', 'hydra', 'lightning'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "lit-gans evaluate" in done.stdout


def test_training_lists_its_groups_and_their_options(command):
    code, out, err = command("train", "--help")
    assert (code, err) == (0, "")
    for name in (*gans(), "digits", "folder", "ring", "dcgan_digits", "inception", "fsdp", "bf16", "rmsprop", "linear"):
        assert f" {name}," in out or f" {name}\n" in out, name
    assert all(f"\n  {name}" in out for name in ("seed", "resume", "init_from"))


def test_a_chosen_group_lists_its_keys_with_meanings(command):
    code, out, err = command("train", "model=sngan", "model.n_critic=7", "--help")
    assert (code, err) == (0, "")
    said = meanings(gans()["sngan"])
    text = " ".join(out.split())
    for name, value in schema(gans()["sngan"]).items():
        if name not in ("_target_", "image_size", "channels", "seed", "n_critic") and not isinstance(value, dict):
            assert f" model.{name} [default: {as_typed(value)}] {said[name]}" in text, name
    assert f"model.n_critic [default: 7] {said['n_critic']}" in text
    assert "model.generator_optimizer.lr [default: 0.0002]" in text


def test_an_experiment_file_is_shown(command, tmp_path):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment/mine.yaml").write_text("# @package _global_\nseed: 7\n")
    code, out, err = command("train", f"experiment={tmp_path}/experiment/mine.yaml", "--help")
    assert (code, err) == (0, "")
    assert "seed: 7" in out


def test_the_help_of_photos_knows_the_minutes(command):
    code, out, err = command("train", "experiment=photos", "data.root=photos", "minutes=60", "--help")
    assert (code, err) == (0, "")
    assert "experiment=photos" in out


def test_other_groups_name_their_keys_too(command):
    code, out, err = command("train", "strategy=ddp", "precision=bf16", "experiment=gan_ring", "-h")
    assert (code, err) == (0, "")
    assert "trainer.strategy.bucket_cap_mb" in out
    assert "sets trainer.precision=bf16-mixed" in out
    assert "- override /data: ring" in out
    code, out, err = command("train", "optimizer@model.generator_optimizer=sgd", "-h")
    assert "model.generator_optimizer.momentum" in out
    assert "model.generator_optimizer.betas" not in out, "Adam's"
    code, out, err = command("train", "model=dcgam", "--help")
    assert (code, out, "did you mean 'dcgan'?" in err) == (2, "", True)


LINES = [line for name in ("train", *FUNCTIONS) for line in described(name).examples]
LINES = [line for line in LINES if line.split()[1] not in ("compare", "plan")]
ELSEWHERE = ("experiment", "model", "data", "metrics", "minutes", "output")  # not keys of the configuration


@pytest.mark.docs
@pytest.mark.parametrize("example", LINES)
def test_examples_compose(command, example):
    words = example.split()[1:]
    if "-m" in words:  # the first run of a sweep
        words = [word.partition(",")[0] for word in words if word != "-m"]
    code, out, err = command(*words, "--cfg", "job")
    assert code == 0, err
    for word in words:
        key, equals, value = word.partition("=")
        if equals and not value.isupper() and "." not in key and key not in ELSEWHERE:
            assert key in out


def test_a_command_is_one_file_that_has_its_usage_and_three_examples():
    assert {"train", "sample", "compare", "fit"} <= {*names()}
    for name in names():
        command = described(name)
        assert command.usage.split()[:2] == ["lit-gans", name]
        assert command.summary
        assert len(command.examples) == 3
