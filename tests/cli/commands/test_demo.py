"""`lit-gans demo`: what it passes to the page, which tests/demo tests."""

from types import SimpleNamespace

import pytest


@pytest.mark.parametrize("checkpoint", ["zoo/dcgan_digits", "run"])
def test_the_title_is_the_checkpoint_as_it_was_typed(ran, saved, monkeypatch, checkpoint):
    """Networks of the zoo were titled zoo, and a run in the current folder had no title."""
    titles = []

    def app(module, title, num_directions):
        titles.append(title)
        return SimpleNamespace(launch=lambda **_: None)

    monkeypatch.setattr("lit_gans.cli.commands.demo.app", app)
    saved()
    ran("demo", f"checkpoint={checkpoint}")
    assert titles == [checkpoint]
