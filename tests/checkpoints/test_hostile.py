"""Untrusted files: no code runs, and damage ends in a sentence."""

import json
import pickle
import random
from contextlib import suppress

import pytest
import torch

from lit_gans.common.errors import RefusedInput
from lit_gans.config.load import load
from lit_gans.data.packed.format import open_packed

from . import hostile
from .hostile import READERS, RECORDS


@pytest.fixture
def good(tmp_path):
    """Makes a good file for a reader; returns the path to read and the file to damage."""

    def make(name):
        path = tmp_path / f"{name.replace(' ', '_')}.ckpt"
        reader = (READERS | RECORDS)[name]
        reader.write(path)
        reader.read(path)
        return path, next(path.glob(reader.inside)) if reader.inside else path

    return make


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*READERS, *RECORDS])
@pytest.mark.parametrize("how", ["torch.save", "pickle"])
def test_no_reader_runs_the_code_of_a_file(good, tmp_path, name, how):
    path, file = good(name)
    trace = tmp_path / "executed"
    if how == "pickle":
        file.write_bytes(pickle.dumps(hostile.Payload(trace), protocol=2))
    else:
        torch.save({"state_dict": {"w": hostile.Payload(trace)}, "global_step": 1}, tmp_path / "hostile.pt")
        torch.load(tmp_path / "hostile.pt", weights_only=False)
        assert trace.exists(), "the file is hostile"
        trace.unlink()
        file.write_bytes((tmp_path / "hostile.pt").read_bytes())
    with pytest.raises(RefusedInput) if name in READERS else suppress(RefusedInput):
        (READERS | RECORDS)[name].read(path)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hyper_parameters": {"generator_width": 32}}, "has a different architecture"),
        ({"hyper_parameters": {"nothing": 1}}, "does not fit its class: .*nothing"),
        ({"hyper_parameters": 3}, "does not fit its class"),
        ({"lit_gans": 3}, "its entry lit_gans is not a mapping"),
        ({"lit_gans": {"class_path": 3, "format_version": 1}}, "does not fit its class"),
        ({"generator_ema": {"format_version": 1, "state_dict": {"a": 1}}}, "does not fit its class"),
        ({"state_dict": 3}, "it has no state_dict"),
        ({"state_dict": {}, "hyper_parameters": {"generator_width": 32}}, "holds no networks"),
    ],
)
def test_a_checkpoint_that_describes_another_module_is_refused(good, change, sentence):
    path, _ = good("module")
    checkpoint = torch.load(path, weights_only=True)
    arguments = change.get("hyper_parameters")
    if isinstance(arguments, dict):
        change = change | {"hyper_parameters": checkpoint["hyper_parameters"] | arguments}
    torch.save(checkpoint | change, path)
    with pytest.raises(RefusedInput, match=sentence):
        load(path)


def test_yaml_of_a_run_runs_no_code(train, tmp_path):
    trace = tmp_path / "executed"
    text = f"!!python/object/apply:os.system ['touch {trace}']"
    folder = tmp_path / "mine/experiment"
    folder.mkdir(parents=True)
    (folder / "bad.yaml").write_text(f"# @package _global_\nseed: {text}\n")
    assert train("experiment=bad", f"hydra.searchpath=[file://{tmp_path}/mine]") == 2
    assert "could not determine a constructor for the tag" in train.err
    assert "bad.yaml" in train.err
    assert not trace.exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"class_path": "os.system"}, "contains a module of os.system, which is neither imported here"),
        ({"class_path": 3}, "class_path is missing or is not of type str"),
        ({"hyper_parameters": {"discriminator_width": 32}}, "has a different architecture"),
        ({"hyper_parameters": {"latent_dim": 10**30}}, "does not fit its class"),
        ({"hyper_parameters": {"nothing": 1}}, "does not fit its class: .*nothing"),
        ({"hyper_parameters": []}, "hyper_parameters is missing or is not of type dict"),
        ({"format_version": "1"}, "format_version is missing or is not of type int"),
    ],
)
def test_an_exported_configuration_that_does_not_fit_its_weights_is_refused(good, change, sentence):
    path, file = good("exported configuration")
    config = json.loads(file.read_text())
    arguments = change.get("hyper_parameters")
    if isinstance(arguments, dict):
        change = {"hyper_parameters": config["hyper_parameters"] | arguments}
    file.write_text(json.dumps(config | change))
    with pytest.raises(RefusedInput, match=sentence):
        load(path)


@pytest.mark.parametrize(
    "claimed",
    [
        {"shape": (2**62, 2**62, 2**62, 2**62)},
        {"shape": (1, -3, -8, 8)},
        {"shape": (1, 3, 64)},
        {"shape": (2, 3, 8, 4)},
        {"shape": 9},
        {"descr": "|O"},
        {"descr": "|i1"},
        {"fortran_order": True},
    ],
)
def test_packed_images_whose_header_claims_something_else_are_refused(good, claimed):
    path, _ = good("packed images")
    hostile.packed_with(path, **claimed)
    with pytest.raises(RefusedInput, match="the images are packed again"):
        open_packed(path)


@pytest.mark.parametrize("name", ["exported configuration", "record of an evaluation"])
def test_deeply_nested_json_is_refused(good, name):
    path, file = good(name)
    file.write_text("[" * 100_000)
    with pytest.raises(RefusedInput):
        READERS[name].read(path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("num", [50, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [*READERS, *RECORDS])
def test_mutations_end_in_a_sentence_or_load(good, name, num):
    """A damaged record costs the record at most."""
    path, file = good(name)
    content, draw = file.read_bytes(), random.Random(name)
    said = []
    for _ in range(num):
        hostile.mutate_file(file, content, draw)
        try:
            (READERS | RECORDS)[name].read(path)
        except RefusedInput as error:
            said.append(str(error))
    assert all(sentence.endswith((".", "?")) and "\n" not in sentence for sentence in said)
    assert len(said) > READERS[name].refused * num if name in READERS else not said
