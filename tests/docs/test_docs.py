"""The README, the site and its generated pages."""

import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from docs import generate
from lit_gans.cli.commands import commands
from lit_gans.config.registry import gans
from lit_gans.config.signatures import meanings, schema
from tests.docs.blocks import ROOT

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
_LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")


def test_the_readme_is_short():
    assert (ROOT / "README.md").read_text().count("\n") <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_exist(page):
    links = [(path, anchor) for path, anchor in _LINK.findall(page.read_text())]
    for path, anchor in links:
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name}: {path}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), flags=re.M)
            assert anchor in {re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in headings}


@pytest.mark.parametrize("path", generate.WRITTEN, ids=lambda path: path.name)
def test_generated_tables_are_up_to_date(path):
    assert path.read_text() == generate.written(path), "run: python -m docs.generate"


def test_the_readme_lists_the_registered_gans():
    table = generate.gan_table()
    assert "|  |" not in table, "the docstring of a GAN's module names its paper: authors and year"
    ours = {name for name, cls in gans().items() if cls.__module__.startswith("lit_gans.")}
    assert {name for name in gans() if f"\n| `{name}` |" in table} == ours


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built strictly."""
    folder = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder))
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    return folder


def test_the_site_loads_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text()
        loaded = re.findall(r"<(?:script|img|source|iframe)[^>]* src=\"([^\"]+)\"", text)
        links = (
            tag for tag in re.findall(r"<link[^>]*>", text) if not re.search(r"rel=\"?(?:canonical|next|prev)", tag)
        )
        loaded += re.findall(r"href=\"?([^\" >]+)", "".join(links))
        assert not [address for address in loaded if "//" in address and not address.startswith("data:")]


def test_generated_pages_name_commands_keys_and_classes(site):
    pages = {name: (site / "reference" / name / "index.html").read_text() for name in ("cli", "configuration")}
    assert all(f">lit-gans {name}<" in pages["cli"] for name in commands())
    assert "generator_width" in pages["configuration"]
    assert "Optimizer(name=Adam, lr=0.0002, betas=[0.0,0.9]" in pages["configuration"]
    assert "lit_gans.training.losses.hinge_discriminator" in (site / "reference/api/training/index.html").read_text()
    assert "<!-- test:" not in (site / "get_started" / "index.html").read_text()


def test_docstrings_give_the_meaning_of_each_key():
    """Every key of a GAN is explained, in its own docstring or in that of a base class."""
    for cls in gans().values():
        said = meanings(cls)
        assert all(said[name] for name in schema(cls) if name != "_target_"), cls


def test_every_subpackage_stands_on_a_floor_and_says_what_it_is():
    folders = {path.parent.name for path in (ROOT / "lit_gans").glob("*/__init__.py")}
    assert folders == {*generate.rooms()}
    assert all(generate.rooms().values())
    assert "| 0 | `common` |" in generate.room_table()


def test_the_table_where_to_change_what_is_the_same_in_both_places():
    site, contributing = (
        re.findall(r"^\| (a[n]? [^|]+) \| ([^|]+) \| ([^|]+) \|", path.read_text(), flags=re.M)
        for path in (ROOT / "docs/extend/index.md", ROOT / "CONTRIBUTING.md")
    )
    assert len(site) > 10
    assert [row[:2] for row in contributing] == [row[:2] for row in site]
    for _, edit, test in site:
        for path in re.findall(r"`([\w./]+/[\w./]*)`", f"{edit} {test}"):
            assert (ROOT / path).exists(), path


def test_pages_of_the_site_are_reachable():
    named = (ROOT / "mkdocs.yml").read_text()
    for path in (ROOT / "docs").rglob("*.md"):
        assert str(Path(path).relative_to(ROOT / "docs")) in named
