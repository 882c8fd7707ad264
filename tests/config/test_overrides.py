"""What is typed arrives: text is quoted for Hydra's grammar, everything else stays as it is."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from lit_gans import RefusedInput, compose
from lit_gans.config.overrides import key_of, quote, quoted, refuse_bare, refuse_options

PATHS = [
    "/photos été/a, b",
    "a=b (1).ckpt",
    "it's [not] {a} dict",
    "trailing\\",
    "back\\'slash",
    'with "both" and \'',
    "~/x",
    "#1; $HOME & 100%",
    "照片/猫",
    " leading and trailing ",
    "choice(a,b)",
    "1,2",
    "2024",
    "2024.10",
    "1e5",
    "True",
]


@pytest.mark.parametrize("path", PATHS)
def test_quoted_text_is_read_back_by_hydra(path):
    (argument,) = quoted([f"data.root={path}"], lambda key, value: True)
    assert compose("data=folder", argument).data.root == path
    assert quoted([argument], lambda key, value: True) == [argument], "text in quotes is left as it is"


def test_an_argument_that_takes_a_path_or_a_dict_takes_both():
    def config(typed):
        return compose("strategy=deepspeed", f"trainer.strategy.config={typed}").trainer.strategy.config

    assert config("/tmp/a b,c.json") == "/tmp/a b,c.json"
    assert config("{train_batch_size: 4, bf16: {enabled: true}}") == {"train_batch_size": 4, "bf16": {"enabled": True}}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_arrives_in_a_configuration_as_it_was_typed(path):
    given = "data.root", "resume", "trainer.default_root_dir"
    config = compose("data=folder", "logger=csv", *(f"{key}={path}" for key in given))
    assert [config.data.root, config.resume, config.logger.csv.save_dir] == [path] * 3


@pytest.mark.parametrize("typed", ['data.root="/a b, c"', "data.root='/a b, c'"])
def test_quotes_that_were_typed_are_hydras(typed):
    assert compose("data=folder", typed).data.root == "/a b, c"


def test_values_that_are_no_text_keep_hydras_grammar():
    config = compose("model.generator_optimizer.betas=[0.1, 0.9]", "callbacks.ema=null", "trainer.devices=[0,1]")
    assert list(config.model.generator_optimizer.betas) == [0.1, 0.9]
    assert list(config.trainer.devices) == [0, 1]
    assert config.callbacks.ema is None
    assert compose("data=folder", "data.root=null").data.root is None
    assert compose("data=folder", "data.root=${oc.env:HOME}/a b").data.root.endswith("/a b")


def test_only_text_that_is_no_plain_word_or_a_number_is_asked_about():
    asked = []
    quoted(["a=1", "b=x/y.ckpt", "c=a b", "-m", "d", "e=a,b"], lambda key, value: asked.append(key) or False)
    assert asked == ["a", "c", "e"]


def test_in_a_sweep_a_comma_separates_unless_a_file_has_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, other = "a (1).ckpt", "b.ckpt"
    (argument,) = quoted([f"init_from={one},{other}", "-m"], lambda key, value: True)[:1]
    override = OverridesParser.create().parse_override(argument)
    assert [text.strip("'") for text in override.sweep_string_iterator()] == [one, other]
    (tmp_path / "a, b").mkdir()
    assert quoted(["data.root=a, b", "-m"], lambda key, value: True)[0] == "data.root='a, b'"
    assert quoted(["init_from=choice(a,b)", "-m"], lambda key, value: True)[0] == "init_from=choice(a,b)"
    assert quoted(["seed=1,2", "-m"], lambda key, value: False)[0] == "seed=1,2"


def test_quote_escapes_what_hydra_unescapes():
    assert [quote("a"), quote("a'b"), quote("a\\"), quote("a\\b")] == ["'a'", "'a\\'b'", "'a\\\\'", "'a\\b'"]


@pytest.mark.parametrize(
    ("argument", "key"),
    [("a.b=1", "a.b"), ("+a=b=c", "a"), ("~a", None), ("--a=1", None), ("x@y.z=w", "x@y.z"), ("my file=1", None)],
)
def test_keys(argument, key):
    assert key_of(argument) == key


def test_options_and_bare_values_are_refused_with_the_right_key():
    with pytest.raises(RefusedInput, match=r"--max_steps: .* HINT max_steps=10"):
        refuse_options(["--max_steps", "10", "model=dcgan"], lambda key, value: f"HINT {key}={value}")
    refuse_options(["--cfg", "job", "-m", "--multirun", "-cd", "folder", "--info", "a=--b"], lambda key, value: key)
    with pytest.raises(RefusedInput, match=r"'run/last\.ckpt' has no key: did you mean checkpoint=run/last\.ckpt\?"):
        refuse_bare(["run/last.ckpt"], lambda word: "checkpoint")
    refuse_bare(["--cfg", "job", "-m", "~callbacks.ema", "a=b", "-cd", "folder"], lambda word: "checkpoint")
