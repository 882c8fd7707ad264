"""`lit-gans demo`: what it passes to the page, which tests/demo tests."""

from types import SimpleNamespace

import pytest
import torch

from lit_gans.data.sources.digits import Digits


@pytest.mark.parametrize("checkpoint", ["zoo/dcgan_digits", "run"])
def test_the_title_is_the_checkpoint_as_it_was_typed(ran, saved, monkeypatch, checkpoint):
    """Networks of the zoo were titled zoo, and a run in the current folder had no title."""
    titles = []

    def app(module, title, num_directions, real):
        titles.append(title)
        assert real is None
        return SimpleNamespace(launch=lambda **_: None)

    monkeypatch.setattr("lit_gans.cli.commands.demo.app", app)
    saved()
    ran("demo", f"checkpoint={checkpoint}")
    assert titles == [checkpoint]


def test_real_images_are_of_the_whole_data_and_of_the_size_of_the_model(ran, refused, monkeypatch):
    shown = []

    def app(module, title, num_directions, real):
        shown.append(real)
        return SimpleNamespace(launch=lambda **_: None)

    monkeypatch.setattr("lit_gans.cli.commands.demo.app", app)
    ran("demo", "checkpoint=zoo/dcgan_digits", "data=digits")
    digits = Digits().dataset.images
    assert torch.equal(shown[0], digits[torch.linspace(0, len(digits) - 1, 18).long()])
    said = refused("demo", "checkpoint=zoo/dcgan_digits", "data=digits", "data.image_size=16")
    assert "data.image_size=16 differs from the checkpoint's model, which has 32" in said
    for command in (["demo"], ["evaluate", "metrics=digits"]):
        said = refused(*command, "checkpoint=zoo/dcgan_digits", "data=ring")
        assert "data= has points, and the checkpoint's model generates images: choose data= with images." in said
