"""jsonargparse's private parts are still there, and still needed."""

from contextlib import nullcontext

import pytest
import yaml
from jsonargparse import ArgumentParser

from lit_gans.cli import fit as lightning_cli
from lit_gans.common._compat.jsonargparse import descriptions


@pytest.mark.parametrize("ours", [True, False])
def test_jsonargparse_still_hands_the_arguments_of_a_replaced_class_on(command, monkeypatch, ours):
    """`other_class_other_arguments` can go once the second case fails."""
    if not ours:
        monkeypatch.setattr(lightning_cli, "other_class_other_arguments", nullcontext)
    fit = ["fit", "--model", "R3GAN", "--data", "Digits", "--model.r1_gamma", "Linear", "--print_config"]
    code, out, err = command(*fit)
    assert code == 0, err
    gamma = yaml.safe_load(out)["model"]["init_args"]["r1_gamma"]["init_args"]
    assert gamma["start"] == (1.0 if ours else 0.05)


def test_jsonargparse_still_lists_inherited_descriptions_in_a_private_attribute():
    class Base:
        def __init__(self, size: int = 1):
            """Makes it.

            Args:
                size: how
                    large.
            """

    class Child(Base):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)

    parser = ArgumentParser()
    parser.add_class_arguments(Child, "it")
    assert descriptions(parser)["it.size"] == "how large."
    assert not hasattr(parser, "actions"), "a public list"
