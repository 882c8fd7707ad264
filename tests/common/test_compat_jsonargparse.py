"""jsonargparse's private parts are still there, and still needed."""

from contextlib import nullcontext

import pytest
import yaml

from lit_gans.cli import lightning as lightning_cli


@pytest.mark.parametrize("ours", [True, False])
def test_jsonargparse_still_hands_the_arguments_of_a_replaced_class_on(command, monkeypatch, ours):
    """`other_class_other_arguments` can go once the second case fails."""
    if not ours:
        monkeypatch.setattr(lightning_cli, "other_class_other_arguments", nullcontext)
    fit = ["fit", "--model", "DCGAN", "--data", "Digits", "--model.generator_optimizer", "RMSprop", "--print_config"]
    code, out, err = command(*fit)
    assert code == 0, err
    optimizer = yaml.safe_load(out)["model"]["init_args"]["generator_optimizer"]["init_args"]
    assert optimizer["learning_rate"] == (5e-5 if ours else 2e-4)
