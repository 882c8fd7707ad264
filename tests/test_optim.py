import pickle

import pytest
import torch

from lit_gans.checkpoints import from_plain, to_plain
from lit_gans.errors import RefusedInput
from lit_gans.optim import SGD, Adam, AdamW, Constant, ConstantThenLinear, Linear, RMSprop


def test_schedules_at_known_iterations():
    assert [Constant().factor(i, 10) for i in (0, 5, 10)] == [1, 1, 1]
    assert [Linear().factor(i, 10) for i in (0, 5, 10, 11)] == [1, 0.5, 0, 0]
    assert [ConstantThenLinear(0.5).factor(i, 10) for i in (0, 4, 5, 8, 10)] == [1, 1, 1, pytest.approx(0.4), 0]


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
        (ConstantThenLinear, {"constant_share": 1.0}, r"must lie in \[0, 1\)"),
    ],
)
def test_refusals(cls, arguments, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        cls(**arguments)
