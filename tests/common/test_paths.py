from pathlib import Path

from lit_gans.common.paths import cache_folder


def test_what_is_given_comes_before_our_variable_before_the_user_s_cache(monkeypatch):
    monkeypatch.delenv("LIT_GANS_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path.home() / ".cache/lit_gans"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path.home() / ".cache/lit_gans", "the specification ignores relative paths"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/lit_gans")
    monkeypatch.setenv("LIT_GANS_CACHE", "~/ours")
    assert cache_folder() == Path.home() / "ours"
    assert cache_folder("/given") == Path("/given")
