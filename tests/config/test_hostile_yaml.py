"""YAML of others: no code runs, nothing grows beyond its bounds, and damage ends in a sentence."""

import tracemalloc
import warnings

import pytest
from hydra._internal.sources_registry import SourcesRegistry
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from lit_gans import RefusedInput, build, compose
from lit_gans.callbacks.evaluation import _read
from lit_gans.common.plain_yaml import refuse_hostile_yaml
from lit_gans.config.source import register
from tests.checkpoints.hostile import draws, mutated

LAUGHS = "\n".join(["a0: &a0 x", *(f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, 10))])
HOSTILE = {
    "code": ("seed: !!python/object/apply:os.system ['touch executed']", "python/object/apply:os.system"),
    "laughs": (LAUGHS, "more than 100000 values with its aliases"),
    "deep": (f"seed: {3000 * '['}{3000 * ']'}", "nested more than 50 deep"),
    "deep keys": (f"seed: {3000 * '{a: '}1{3000 * '}'}", "nested more than 50 deep"),
    "itself": ("seed: &a [*a]", "has an alias *a of nothing, or in it"),
    "giant": (f"seed: {5000 * '9'}", "a number with more than 400 digits"),
    "large": (f"seed: {2**20 * ' '}1", "expected at most 1048576"),
    "binary": ("seed: \udcff", "is not UTF-8 text"),
}
PLAIN = """# @package _global_
defaults:
  - override /model: dcgan
  - override /data: digits
model: &sizes {latent_dim: 8, generator_width: 4}
trainer: {max_steps: 300, log_every_n_steps: 5}
callbacks: {ema: {decay: 0.99}, samples: {num: 4, every_n_steps: 20}}
hydra: {run: {dir: "a 'quoted' folder"}}
"""


def source_of(folder):
    """Returns what Hydra reads the files of a folder with."""
    register()
    return SourcesRegistry.instance().resolve("file")("test", f"file://{folder}")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of experiments in a search path."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine/experiment").mkdir(parents=True)
    return tmp_path / "mine/experiment"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_of_others_is_refused(folder, name):
    text, sentence = HOSTILE[name]
    (folder / "bad.yaml").write_text(f"# @package _global_\n{text}\n", errors="surrogateescape")
    with pytest.raises(YAMLError) as refused:
        source_of(folder).load_config("bad")
    assert sentence in str(refused.value)
    assert "bad.yaml" in str(refused.value)
    assert not (folder.parents[1] / "executed").exists()


def test_aliases_of_others_take_no_memory(folder):
    (folder / "bad.yaml").write_text(f"# @package _global_\n{LAUGHS}\n")
    tracemalloc.start()
    with pytest.raises(RefusedInput, match="has more than 100000 values with its aliases"):
        compose("experiment=bad", f"hydra.searchpath=[file://{folder.parent}]")
    assert tracemalloc.get_traced_memory()[1] < 2**26
    tracemalloc.stop()


@pytest.mark.parametrize("name", ["code", "laughs", "deep"])
def test_a_run_yaml_of_others_is_refused(folder, command, name):
    (folder / "run.yaml").write_text(HOSTILE[name][0].replace("seed:", "seed_everything:"))
    code, _, err = command("fit", "-c", str(folder / "run.yaml"))
    assert code == 2
    assert "Problems parsing config" in err
    assert "Traceback" not in err
    assert not (folder.parents[1] / "executed").exists()


def test_aliases_long_texts_and_large_numbers_are_plain():
    refuse_hostile_yaml(f"a: &a [1, 2]\nb: [*a, *a]\nc: '{'9' * 500}'\nd: {'x' * 500}\ne: 1e30\nf: {'9' * 300}", "it")


def fuzz(folder, num, num_composed):
    """Loads mutations of an experiment as Hydra does: each is refused in a sentence, or loads. Some of those that load
    are composed and constructed, as `lit-gans train` does before any device work.
    """
    source = source_of(folder)
    draw, refused, composed = draws("yaml"), 0, []
    (folder / "mutated.yaml").write_text(PLAIN)
    assert constructs(folder)
    for _ in range(num):
        (folder / "mutated.yaml").write_bytes(mutated(PLAIN.encode(), draw))
        try:
            source.load_config("mutated")
        except (YAMLError, OmegaConfBaseException) as error:
            refused += bool(str(error))
            continue
        if len(composed) < num_composed:
            composed.append(constructs(folder))
    assert num / 10 < refused < num
    assert len(composed) == num_composed
    assert not all(composed)


def constructs(folder):
    """Returns whether a run can be constructed, as opposed to refused in a sentence; any other error fails."""
    small = ("trainer.accelerator=cpu", "model.discriminator_width=4", "data.image_size=16", "logger=none")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            build(compose("experiment=mutated", f"hydra.searchpath=[file://{folder.parent}]", *small))
    except RefusedInput as error:
        sentence = str(error)
    else:
        return True
    assert sentence
    assert "\n" not in sentence
    return False


def test_fifty_mutations_are_refused_or_load(folder):
    fuzz(folder, 50, 5)


@pytest.mark.slow
def test_a_thousand_mutations_are_refused_or_load(folder):
    fuzz(folder, 1000, 100)


@pytest.mark.parametrize("text", ["{", 100_000 * "[", "[1]", "9" * 5000])
def test_a_damaged_protocol_is_named_and_written_again(tmp_path, caplog, text):
    path = tmp_path / "protocol.json"
    path.write_text('{"metric/fid": {"num": 3}}')
    assert _read(path) == {"metric/fid": {"num": 3}}
    path.write_text(text)
    assert _read(path) == {}
    assert "protocol.json is damaged and is written again" in caplog.text
