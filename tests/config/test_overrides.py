"""What is typed arrives: text is quoted for Hydra's grammar where it must be, everything else stays as it is."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from lit_gans import RefusedInput, compose
from lit_gans.config.overrides import quoted, replacing_nodes, with_search_path

PATHS = [
    "photos été/a, b",
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
]


@pytest.mark.runs
def test_a_path_arrives_in_a_configuration_as_it_was_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in PATHS:
        (tmp_path / path).mkdir(parents=True)
        assert compose("data=folder", f"data.root={path}").data.root == path
    for path in ("none (1).ckpt", "it's [not] {b} dict", "100% & #1"):  # which do not exist, and Hydra cannot read
        assert compose("data=folder", f"data.root={path}").data.root == path


def test_numbers_are_numbers_where_a_folder_has_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("1", "2.5", "null"):
        (tmp_path / name).mkdir()
    config = compose("seed=1", "model.clip_gradients=2.5", "callbacks.ema=null")
    assert (config.seed, config.model.clip_gradients, config.callbacks.ema) == (1, 2.5, None)


def test_names_of_folders_that_look_like_numbers_stay_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "2024_07").mkdir()
    assert compose("data=folder", "data.root=2024_07").data.root == "2024_07"
    for key in ("hydra.run.dir", "trainer.default_root_dir", "output", "checkpoint", "real", "+data.root", "init_from"):
        for name in ("2025_01", "1e5", "3"):
            assert quoted([f"{key}={name}"]) == [f"{key}='{name}'"]
        assert quoted([f"{key}=null"]) == [f"{key}=null"]
    assert compose("trainer.max_steps=10_000").trainer.max_steps == 10_000


def test_values_that_are_no_text_keep_hydras_grammar(monkeypatch):
    monkeypatch.setenv("PHOTOS", "/photos")
    config = compose("model.generator_optimizer.betas=[0.1, 0.9]", "callbacks.ema=null", "trainer.devices=[0,1]")
    assert list(config.model.generator_optimizer.betas) == [0.1, 0.9]
    assert list(config.trainer.devices) == [0, 1]
    assert config.callbacks.ema is None
    assert compose("data=folder", "data.root=${oc.env:PHOTOS}/a b").data.root == "/photos/a b"
    assert compose("data=folder", "data.root='/a b, c'").data.root == "/a b, c", "quotes that were typed are Hydra's"


SCHEDULE = "{_target_: lit_gans.CosineSchedule, start: 5.0, end: 0.5}"


def test_a_class_that_is_typed_replaces_the_node():
    """The arguments of the experiment's schedule stayed, so that `over` counted images."""
    experiment = compose("experiment=r3gan_digits", f"model.r1_gamma={SCHEDULE}", "model.r1_gamma.start=2")
    assert experiment.model.r1_gamma == {"_target_": "lit_gans.CosineSchedule", "start": 2, "end": 0.5}
    nested = compose("experiment=r3gan_digits", f"model.generator_optimizer={{lr: 0.1, schedule: {SCHEDULE}}}")
    assert nested.model.generator_optimizer.schedule == dict(experiment.model.r1_gamma) | {"start": 5.0}
    assert nested.model.generator_optimizer.lr == 0.1
    assert nested.model.generator_optimizer.betas[1].over == 64000, "what was not typed stays"
    adaptive = compose("experiment=r3gan_cifar10", "model.augmentation={_target_: lit_gans.Adaptive}")
    assert adaptive.model.augmentation == {"_target_": "lit_gans.Adaptive"}
    added = compose("experiment=gan_ring", "+callbacks.samples={_target_: lit_gans.callbacks.EMA}")
    assert added.callbacks.samples == {"_target_": "lit_gans.callbacks.EMA"}
    swept = f"model.r1_gamma=1.0,{SCHEDULE}"
    assert replacing_nodes(["seed=1", swept]) == ["seed=1", "model.r1_gamma=null", swept]


def test_in_a_sweep_a_comma_separates_unless_a_file_has_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, other = "a (1).ckpt", "b.ckpt"
    (argument,) = quoted([f"init_from={one},{other}", "-m"])[:1]
    override = OverridesParser.create().parse_override(argument)
    assert [text.strip("'") for text in override.sweep_string_iterator()] == [one, other]
    (tmp_path / "a, b").mkdir()
    assert quoted(["data.root=a, b", "-m"])[0] == "data.root='a, b'"
    for argument in ("init_from=choice(a,b)", "seed=1,2"):
        assert quoted([argument, "-m"])[0] == argument


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ["hydra.searchpath=[ours]"]),
        (["hydra.searchpath=[]"], ["hydra.searchpath=[ours]"]),
        (["hydra.searchpath=[file://a, b]", "x=1"], ["x=1", "hydra.searchpath=[file://a, b,ours]"]),
    ],
)
def test_the_source_of_classes_comes_last_on_the_search_path(given, expected):
    assert with_search_path(given, last="ours") == expected


LONG = {
    "a sweep": ",".join(map(str, range(1000))),
    "a list": f"[{','.join(map(str, range(1000)))}]",
    "a mapping": "{" + ",".join(f"class_{number}:1.5" for number in range(300)) + "}",
    "a component": "a" * 300 + "/b,c",
    "a path": "/".join(["a,b"] * 3000),
}


@pytest.mark.parametrize("name", LONG)
def test_a_value_that_is_too_long_for_a_path_is_passed_on_as_it_is(name):
    for flags in ([], ["-m"]):
        assert quoted([f"key={LONG[name]}", *flags]) == [f"key={LONG[name]}", *flags]


def test_long_values_are_composed():
    weights = {f"class_{number}": 1.5 for number in range(300)}
    text = ",".join(f"{name}:{weight}" for name, weight in weights.items())
    config = compose("data=folder", "data.root=here", f"data.class_weights={{{text}}}", f"seed={'1' * 300}")
    assert config.data.class_weights == weights
    assert config.seed == int("1" * 300)


@pytest.mark.parametrize(("choice", "package"), [("sweeper=ax", "ax-sweeper"), ("launcher=ray_aws", "ray-launcher")])
def test_a_plugin_of_hydra_that_is_not_installed_is_named(choice, package):
    with pytest.raises(RefusedInput, match=f"valid names: basic.*python -m pip install hydra-{package}"):
        compose(f"hydra/{choice}")


def test_a_misspelled_plugin_of_hydra_is_named():
    with pytest.raises(RefusedInput, match=r"Could not find 'hydra/sweeper/basi'; did you mean 'basic'\?$"):
        compose("hydra/sweeper=basi")
