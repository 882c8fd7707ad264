import copy
import pickle

import numpy as np
import pytest
import torch

from lit_gans.checkpoints.format import from_plain, to_plain
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.training.optim import OptimizerConfig, optimizer_names
from lit_gans.training.optim import _defaults as optimizer_defaults
from lit_gans.training.schedules import CosineSchedule, LinearSchedule

SETTINGS = [
    OptimizerConfig("Adam", lr=1e-3, betas=(0.1, 0.2), eps=1e-6, weight_decay=0.3),
    OptimizerConfig("AdamW", lr=1e-3, amsgrad=True, schedule=LinearSchedule()),
    OptimizerConfig("RMSprop", lr=1e-3, alpha=0.5, centered=True),
    OptimizerConfig("SGD", lr=1e-3, momentum=0.7, nesterov=True),
    OptimizerConfig("NAdam", lr=1e-3, momentum_decay=0.1),
    OptimizerConfig("Adagrad", lr=1e-3, initial_accumulator_value=0.1),
]


@pytest.mark.parametrize("settings", SETTINGS[:3], ids=lambda settings: settings.name)
def test_values_survive_pickle_and_plain(settings):
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert from_plain(to_plain(settings)) == settings


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: settings.name)
def test_a_value_that_modules_share_cannot_change(settings):
    before = repr(settings)
    with pytest.raises(AttributeError, match="construct a new one"):
        settings.name = "Lion"
    with pytest.raises(AttributeError, match="construct a new one"):
        settings.options = {}
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del settings.schedule
    with pytest.raises(TypeError, match="does not support item assignment"):
        settings.options["lr"] = 1.0
    with pytest.raises(TypeError, match="does not support item assignment"):
        optimizer_defaults(settings.name)["lr"] = 1.0
    settings.init_args["lr"] = 1.0
    assert repr(settings) == before
    for again in (copy.copy(settings), copy.deepcopy(settings), OptimizerConfig(**settings.init_args)):
        assert (again, hash(again)) == (settings, hash(settings))
    assert OptimizerConfig(**settings.init_args | {"lr": 0.5}).options["lr"] == 0.5
    assert len({*SETTINGS, *copy.deepcopy(SETTINGS)}) == len(SETTINGS)


def test_a_module_cannot_change_the_default_of_the_next_one(tiny_gan):
    with pytest.raises(TypeError, match="does not support item assignment"):
        tiny_gan("sngan").generator_optimizer.options["lr"] = 1.0
    assert tiny_gan("sngan").generator_optimizer.options["lr"] == 2e-4


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "Adan"}, "torch.optim has no such optimizer; did you mean 'Adam'"),
        ({"name": "LBFGS"}, "no such optimizer"),
        ({"learning_rate": 0.1}, "learning_rate: Adam has no such argument"),
        ({"lr": 0.0}, "lr=0.0 must be greater than 0"),
        ({"lr": float("nan")}, "lr=nan must be"),
        ({"betas": (0.5, CosineSchedule(0.9, 1.0))}, "Invalid beta"),
        ({"betas": (0.5,)}, "of the same type as torch's default"),
        ({"betas": (0.5, True)}, "betas=True must be a number"),
        ({"lr": True}, "lr=True must be a number"),
        ({"lr": "fast"}, "lr='fast' must be a number"),
        ({"amsgrad": "no"}, "amsgrad='no' must be"),
        ({"weight_decay": float("inf")}, "weight_decay=inf must be"),
        ({"name": "SGD", "momentum": 1.5}, r"momentum=1.5 must lie in \[0, 1\)"),
    ],
)
def test_refusals(arguments, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        OptimizerConfig(**arguments)


@pytest.mark.parametrize(
    "settings", [*SETTINGS, *map(OptimizerConfig, optimizer_names())], ids=lambda settings: settings.name
)
@pytest.mark.parametrize("fused", [False, True])
def test_every_value_reaches_torch_and_a_fused_step_is_the_same(settings, fused):
    weights = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    built = settings.build(weights[:1], fused)
    plain = getattr(torch.optim, settings.name)(weights[1:], **settings.options)
    assert type(built) is type(plain)
    assert bool(built.defaults.get("fused")) == (fused and settings.name in ("Adam", "AdamW"))
    for weight, optimizer in zip(weights, (built, plain), strict=True):
        for gradient in (1.0, -0.5):
            weight.grad = torch.full((3,), gradient)
            optimizer.step()
    assert not torch.equal(weights[0], torch.ones(3))
    torch.testing.assert_close(*weights, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", optimizer_names())
def test_whole_numbers_text_and_scalars_of_numpy_are_floats_of_every_optimizer(name):
    defaults = OptimizerConfig(name).options
    for convert in (lambda number: int(number) if number == int(number) else number, str, np.float64, torch.tensor):
        given = {}
        for key, value in defaults.items():
            if isinstance(value, tuple) and None not in value:
                given[key] = [convert(number) for number in value]
            elif isinstance(value, float):
                given[key] = convert(value)
        found = OptimizerConfig(name, **given).options
        # a tensor is a float32
        numbers, expected = (torch.tensor(list(flat_numbers(each)), dtype=torch.float64) for each in (found, defaults))
        torch.testing.assert_close(numbers, expected, rtol=1e-6, atol=0)
        assert {type(number) for number in flat_numbers(found)} == {float}


def flat_numbers(options):
    for value in options.values():
        if not isinstance(value, bool):
            yield from (number for number in (value if isinstance(value, tuple) else (value,)) if number is not None)


@pytest.mark.parametrize("betas", [(0, 0.99), [0, 0], (0, LinearSchedule(0, 0.5)), np.array([0, 0.99])], ids=str)
def test_whole_numbers_as_betas_take_the_step_of_floats(betas):
    one, other = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    settings = OptimizerConfig("Adam", lr=1, betas=betas)
    first = [each.start if isinstance(each, LinearSchedule) else float(each) for each in betas]
    for weight, optimizer in ((one, settings.build([one])), (other, torch.optim.Adam([other], lr=1.0, betas=first))):
        weight.grad = torch.tensor([1.0, -2.0, 0.5])
        optimizer.step()
    assert torch.equal(one, other)


SGD = OptimizerConfig("SGD", lr=0.1, momentum=0.5, schedule=LinearSchedule(1, 0))


@pytest.mark.parametrize(
    "plain",
    [
        {"name": "SGD", "lr": "1e-1", "momentum": 0.5, "schedule": LinearSchedule()},
        {"name": "torch.optim.SGD", "lr": 0.1, "momentum": 0.5, "schedule": to_plain(LinearSchedule())},
        {
            "class_path": "torch.optim.SGD",
            "init_args": {"lr": 0.1, "momentum": 0.5, "schedule": to_plain(LinearSchedule())},
        },
        to_plain(SGD),
    ],
)
def test_a_mapping_describes_an_optimizer(plain):
    assert OptimizerConfig.from_plain(plain) == SGD


def test_a_name_describes_an_optimizer():
    assert OptimizerConfig.from_plain("SGD") == OptimizerConfig.from_plain("torch.optim.SGD") == OptimizerConfig("SGD")


@pytest.mark.parametrize("strategy", ["auto", NetworkDDP])
def test_a_resumed_run_has_its_own_options_and_the_states_of_the_checkpoint(
    tiny_gan, random_images, fit, tmp_path, strategy
):
    old = OptimizerConfig("Adam", lr=2e-4, betas=(0.5, 0.9))
    new = OptimizerConfig("Adam", lr=1e-6, betas=(LinearSchedule(0.1, 0.3), 0.9), schedule=LinearSchedule())
    settings = {"strategy": strategy if strategy == "auto" else strategy()}
    trainer = fit(tiny_gan(generator_optimizer=old), random_images(), 2, **settings)
    trainer.save_checkpoint(tmp_path / "2.ckpt")
    module, found = tiny_gan(generator_optimizer=new), []
    module.on_before_optimizer_step = lambda stepped: found.append(
        [stepped.param_groups[0][name] for name in ("lr", "initial_lr", "betas")]
        + [next(iter(stepped.state.values()))["step"].item()]
    )
    settings = {"strategy": strategy if strategy == "auto" else strategy()}
    with pytest.warns(UserWarning, match=r"different settings: generator_optimizer\.lr=0\.0002 there, 1e-06 here; .*"):
        fit(module, random_images(), 4, resume=tmp_path / "2.ckpt", **settings)
    assert found[0] == [2e-4, 2e-4, (0.5, 0.999), 2], "the discriminator's options are the same"
    assert found[1] == [pytest.approx(0.5e-6), 1e-6, (pytest.approx(0.2), 0.9), 2]
    assert found[3] == [pytest.approx(0.25e-6), 1e-6, (pytest.approx(0.25), 0.9), 3]


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [("Adam", "amsgrad", True), ("RMSprop", "momentum", 0.5), ("RMSprop", "centered", True)],
)
def test_an_option_whose_state_the_checkpoint_lacks_is_refused(
    tiny_gan, random_images, fit, tmp_path, name, option, value
):
    old, new = OptimizerConfig(name), OptimizerConfig(name, **{option: value})
    fit(tiny_gan(generator_optimizer=old), random_images(), 1).save_checkpoint(tmp_path / "1.ckpt")
    with pytest.raises(
        RefusedInput, match=rf"no optimizer state for generator_optimizer\.{option}={value}: resume with"
    ):
        fit(tiny_gan(generator_optimizer=new), random_images(), 2, resume=tmp_path / "1.ckpt")
    fit(tiny_gan(generator_optimizer=new), random_images(), 1).save_checkpoint(tmp_path / "1.ckpt")
    with pytest.warns(UserWarning, match="different settings"):
        fit(tiny_gan(generator_optimizer=old), random_images(), 2, resume=tmp_path / "1.ckpt")


def test_contiguous_moments_of_channels_last_weights_stay_with_their_weights(tiny_gan, random_images, fit, tmp_path):
    """As ZeRO stores them: a fused step on the CPU pairs weights and moments in the order of their memory."""
    fit(tiny_gan(), random_images(), 2).save_checkpoint(tmp_path / "as_trained.ckpt")
    saved = torch.load(tmp_path / "as_trained.ckpt", weights_only=True)
    states = [state for each in saved["optimizer_states"] for state in each["state"].values()]
    arranged = [state["exp_avg"].stride() for state in states]
    for state in states:
        state.update({name: value.contiguous() for name, value in state.items()})
    assert [state["exp_avg"].stride() for state in states] != arranged
    torch.save(saved, tmp_path / "contiguous.ckpt")
    weights = []
    for name in ("as_trained", "contiguous"):
        module = tiny_gan()
        fit(module, random_images(), 4, resume=tmp_path / f"{name}.ckpt")
        weights.append(module.state_dict())
        assert [optimizer.param_groups[0]["fused"] for optimizer in module.optimizers()] == [True, True]
    torch.testing.assert_close(*weights, rtol=0, atol=0)
