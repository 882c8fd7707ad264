import pickle
from dataclasses import fields

import pytest
import torch

from lit_gans.checkpoints.format import from_plain, to_plain
from lit_gans.common.errors import RefusedInput
from lit_gans.training.optim import SGD, Adam, AdamW, RMSprop
from lit_gans.training.schedules import Constant, ConstantThenLinear, Linear, Progress


def test_schedules_at_known_iterations():
    def values(schedule, *iterations):
        return [schedule.at(Progress(iteration, total=10)) for iteration in iterations]

    assert values(Constant(), 0, 5, 10) == [1, 1, 1]
    assert values(Linear(), 0, 5, 10, 11) == [1, 0.5, 0, 0]
    assert values(ConstantThenLinear(0.5), 0, 4, 5, 8, 10) == [1, 1, 1, pytest.approx(0.4), 0]


@pytest.mark.parametrize(
    ("settings", "cls", "values"),
    [
        (
            Adam(learning_rate=1e-3, betas=(0.1, 0.2), eps=1e-6, weight_decay=0.3),
            torch.optim.Adam,
            ("betas", (0.1, 0.2)),
        ),
        (AdamW(learning_rate=1e-3, weight_decay=0.3), torch.optim.AdamW, ("weight_decay", 0.3)),
        (RMSprop(learning_rate=1e-3, alpha=0.5), torch.optim.RMSprop, ("alpha", 0.5)),
        (SGD(learning_rate=1e-3, momentum=0.5), torch.optim.SGD, ("momentum", 0.5)),
    ],
)
def test_builds_what_it_says_and_survives_pickle_and_plain(settings, cls, values):
    optimizer = settings.build([torch.nn.Parameter(torch.ones(2))])
    assert type(optimizer) is cls
    assert optimizer.defaults["lr"] == 1e-3
    assert optimizer.defaults[values[0]] == values[1]
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert from_plain(to_plain(settings)) == settings


def test_plain_values_of_unknown_classes_are_refused():
    with pytest.raises(RefusedInput, match="is not imported"):
        from_plain({"class_path": "os.system", "init_args": {}})


@pytest.mark.parametrize(
    ("cls", "arguments", "sentence"),
    [
        (Adam, {"learning_rate": 0.0}, "must be greater than 0"),
        (RMSprop, {"learning_rate": -1.0}, "must be greater than 0"),
        (Adam, {"betas": (0.5, 1.0)}, r"must each lie in \[0, 1\)"),
        (Adam, {"learning_rate": float("inf")}, "learning_rate=inf must be greater than 0 and at most 1000"),
        (SGD, {"learning_rate": float("nan")}, "learning_rate=nan"),
        (AdamW, {"learning_rate": 1e30}, "at most 1000"),
        (Adam, {"weight_decay": float("inf")}, r"weight_decay=inf must lie in \[0, 1000\]"),
        (AdamW, {"weight_decay": -1.0}, "weight_decay=-1.0"),
        (Adam, {"betas": (float("nan"), 0.9)}, "betas"),
        (Adam, {"eps": float("inf")}, "eps=inf"),
        (RMSprop, {"alpha": 1.0}, r"alpha=1.0 must lie in \[0, 1\)"),
        (SGD, {"momentum": 1.5}, r"momentum=1.5 must lie in \[0, 1\)"),
        (ConstantThenLinear, {"constant_share": float("nan")}, "constant_share=nan"),
        (ConstantThenLinear, {"constant_share": 1.0}, r"must lie in \[0, 1\)"),
    ],
)
def test_refusals(cls, arguments, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        cls(**arguments)


@pytest.mark.parametrize(
    ("cls", "values"),
    [
        (Adam, {"learning_rate": 1e-3, "betas": (0.1, 0.2), "eps": 1e-6, "weight_decay": 0.3}),
        (AdamW, {"learning_rate": 1e-3, "betas": (0.1, 0.2), "eps": 1e-6, "weight_decay": 0.3}),
        (RMSprop, {"learning_rate": 1e-3, "alpha": 0.5, "eps": 1e-6, "weight_decay": 0.3, "momentum": 0.7}),
        (SGD, {"learning_rate": 1e-3, "momentum": 0.7, "weight_decay": 0.3}),
    ],
)
@pytest.mark.parametrize("fused", [False, True])
def test_every_value_reaches_torch_and_a_fused_step_is_the_same(cls, values, fused):
    settings = cls(**values)
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = settings.build([parameter], fused)
    assert set(values) == {field.name for field in fields(settings)} - {"schedule"}, "none is left out here"
    for name, value in values.items():
        assert optimizer.defaults["lr" if name == "learning_rate" else name] == value
    assert bool(optimizer.defaults.get("fused")) == (fused and cls in (Adam, AdamW))
    plain = torch.nn.Parameter(torch.ones(3))
    others = {"lr" if name == "learning_rate" else name: value for name, value in values.items()}
    for weight, stepped in ((parameter, optimizer), (plain, getattr(torch.optim, cls.__name__)([plain], **others))):
        for gradient in (1.0, -0.5):
            weight.grad = torch.full((3,), gradient)
            stepped.step()
    torch.testing.assert_close(parameter, plain, rtol=1e-6, atol=1e-7)


def test_only_schedules_that_decay_need_the_total():
    assert not Constant().needs_total
    assert Linear().needs_total
    assert ConstantThenLinear().needs_total


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
