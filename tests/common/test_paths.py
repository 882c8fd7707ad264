from pathlib import Path

import pytest
from PIL import Image

from lit_gans.common.paths import cache_folder
from lit_gans.data.sources.folder import Folder
from lit_gans.metrics.cache import reference_path
from lit_gans.metrics.extractors.digits import DigitsExtractor


@pytest.fixture
def environment(monkeypatch):
    monkeypatch.delenv("LIT_GANS_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return monkeypatch


def test_what_is_given_comes_before_our_variable_before_the_user_s_cache(environment):
    assert cache_folder() == Path.home() / ".cache/lit_gans"
    environment.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path.home() / ".cache/lit_gans", "the specification ignores relative paths"
    environment.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/lit_gans")
    environment.setenv("LIT_GANS_CACHE", "~/ours")
    assert cache_folder() == Path.home() / "ours"
    assert cache_folder("/given") == Path("/given")


def test_packed_images_and_statistics_share_it(environment, tmp_path):
    environment.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert reference_path(DigitsExtractor(), some="key").parent == tmp_path / "lit_gans/references"
    Image.new("RGB", (8, 8)).save(tmp_path / "image.png")
    assert Folder(root=str(tmp_path)).cache == tmp_path / "lit_gans"
