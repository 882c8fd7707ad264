"""`--help` of every command: keys, meanings and defaults are those of its function, and examples that are valid."""

import importlib
import inspect
import shlex
import subprocess
import sys

import pytest

from lit_gans.cli.commands import commands
from lit_gans.config.docs import as_typed, meanings
from lit_gans.config.registry import gans
from lit_gans.config.signatures import schema


def keys(text):
    """The keys of a help and what it says of them, each on one line."""
    lines = text.partition("\nKeys\n")[2].partition("\n\n")[0].splitlines()
    found = {}
    for line in lines:
        name, _, rest = line.strip().partition(" ")
        if line[2] != " ":
            current = name
            found[current] = rest.strip()
        else:
            found[current] += f" {line.strip()}"
    return {name: text.strip() for name, text in found.items()}


FUNCTIONS = [name for name, said in commands().items() if not said.text and name != "fit"]


def function_of(name):
    return getattr(importlib.import_module(f"lit_gans.cli.{name}"), name)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_a_command_shows_its_keys_with_meanings_and_defaults(command, name, flag, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = command(*name.split(), flag)
    assert (code, err) == (0, "")
    function = function_of(name)
    shown, said = keys(out), meanings(function)
    assert list(shown) == list(inspect.signature(function).parameters)
    for key, parameter in inspect.signature(function).parameters.items():
        assert said[key], key
        assert said[key] in shown[key]
        required = parameter.default is parameter.empty
        assert shown[key].endswith("[required]" if required else f"[default: {as_typed(parameter.default)}]")
    assert all(f"\n  {example}\n" in f"{out}\n" for example in commands()[name].examples)
    assert max(map(len, out.partition("Examples")[0].splitlines())) <= 80


def test_it_is_quick(tmp_path):
    code = "import sys; from lit_gans.cli import main as cli; sys.argv = ['lit-gans', 'evaluate', '--help']\n"
    code += "try: cli.main()\nexcept SystemExit as stopped: assert stopped.code == 0\n"
    code += "assert not {'torch', 'hydra', 'lightning'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "lit-gans evaluate" in done.stdout


def test_compare_has_a_help_too(command):
    code, out, err = command("compare", "--help")
    assert (code, err) == (0, "")
    assert "lit-gans compare A.json B.json" in out


def test_training_lists_its_groups_and_their_options(command):
    code, out, err = command("train", "--help")
    assert "score@metrics.scores.{kid,mifid,prdc}:" in out, "the slots that exist"
    assert (code, err) == (0, "")
    for name in (*gans(), "digits", "folder", "ring", "dcgan_digits", "inception", "fsdp", "bf16", "rmsprop", "linear"):
        assert f" {name}," in out or f" {name}\n" in out, name
    for name in ("seed", "resume", "init_from"):
        assert f"\n  {name}" in out
    assert "lit-gans train --cfg job" in out
    assert out.count("\n  lit-gans train") == 3


def test_a_chosen_group_lists_its_keys_with_meanings(command):
    code, out, err = command("train", "model=sngan", "model.n_critic=7", "--help")
    assert (code, err) == (0, "")
    said = meanings(gans()["sngan"])
    text = " ".join(out.split())
    for name, value in schema(gans()["sngan"]).items():
        if name != "_target_":
            assert f" model.{name} {said[name]}" in text, name
        if name not in ("_target_", "image_size", "channels", "seed", "n_critic") and not isinstance(value, dict):
            assert f" model.{name} {said[name]} [default: {as_typed(value)}]" in text, name
    assert f"model.n_critic {said['n_critic']} [default: 7]" in text
    assert "model.generator_optimizer.lr" in text


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


def test_meanings_are_found_where_a_docstring_refers_to_another():
    from lit_gans.data.sources.folder import Folder

    assert "square" in meanings(Folder)["crop"]
    assert not any(text.startswith("see `") for name, text in meanings(Folder).items() if not name.startswith("*"))


LINES = [line for name in ("train", *FUNCTIONS) for line in commands()[name].examples]


@pytest.mark.parametrize("example", LINES)
def test_examples_compose(command, example):
    words = shlex.split(example)
    words = words[words.index("lit-gans") + 1 :]  # after torchrun
    if "-m" in words:  # the first run of a sweep
        words = [word.partition(",")[0] for word in words if word != "-m"]
    code, out, err = command(*words, "--cfg", "job")
    assert code == 0, err
    for word in words:
        key, equals, value = word.partition("=")
        if equals and not value.isupper() and "." not in key and key not in ("experiment", "model", "data", "metrics"):
            assert key in out


def test_a_command_is_one_file_and_has_three_examples(command):
    assert {"train", "sample", "compare", "fit"} <= {*commands()}
    assert not {"main", "help", "train_help", "report"} & {*commands()}
    assert {name: len(said.examples) for name, said in commands().items()} == dict.fromkeys(commands(), 3)
    for name in ("compare", "tune"):
        code, out, err = command(name, "--help")
        assert (code, err, out.count(f"\n  lit-gans {name}") > 0) == (0, "", True)
