"""The README, the site and its generated pages."""

import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from docs import architecture, generate
from lit_gans.config.docs import meanings
from lit_gans.config.registry import gans
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


def test_the_readme_lists_the_registered_gans():
    """`python -m docs.generate` writes the table."""
    text = (ROOT / "README.md").read_text()
    table = text[text.index(generate.BEGIN) + len(generate.BEGIN) : text.index(generate.END)]
    assert table == generate.gan_table(), "run: python -m docs.generate"
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
    for words in ("train", "compare", "fit", *generate.commands()):
        assert f">lit-gans {words}<" in pages["cli"]
    assert "generator_width" in pages["configuration"]
    assert "Optimizer(name=Adam, lr=0.0002, betas=[0.5, 0.999]" in pages["configuration"]
    assert "lit_gans.training.losses.hinge_discriminator" in (site / "reference/api/training/index.html").read_text()
    assert "<!-- test:" not in (site / "get_started" / "index.html").read_text()


def test_docstrings_give_the_meaning_of_each_key():
    """Every key of a GAN is explained, in its own docstring or in that of a base class."""
    for cls in gans().values():
        keys = re.findall(r"^\| `([^`]+)`", generate.key_table(cls), flags=re.M)
        assert all(meanings(cls).get(name) for name in keys), cls


def test_the_picture_has_every_room_and_its_arrows_go_down(tmp_path):
    graph = architecture.downward(architecture.arrows())
    levels = architecture.floors(graph)
    assert all(levels[name] > levels[other] for name, others in graph.items() for other in others)
    drawn = architecture.reduced(graph)
    for name in graph:  # what is left out is implied
        below, todo = set(), [name]
        while todo:
            others = drawn[todo.pop()]
            todo += others - below
            below |= others
        assert graph[name] <= below
    architecture.draw(tmp_path / "rooms.svg")
    assert all(f">{name}<" in (tmp_path / "rooms.svg").read_text() for name in graph)


def test_rooms_of_a_package_written_here(tmp_path):
    files = {
        "top/__init__.py": '"""Above.\n\nMore."""',
        "top/a.py": "from toy.middle.b import x\nimport toy.base.c",
        "middle/__init__.py": "",
        "middle/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from toy.top import a\n",
        "middle/lazy.py": "def f():\n    from toy import base",
        "base/__init__.py": "",
        "base/c.py": "import os",
        "files_only/__init__.py": "",
    }
    for name, text in files.items():
        path = tmp_path / "toy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    graph = architecture.arrows(tmp_path / "toy")
    assert graph == {"top": {"middle", "base"}, "middle": {"base"}, "base": set()}
    assert architecture.rooms(tmp_path / "toy")["top"] == "Above."
    assert architecture.floors(graph) == {"top": 2, "middle": 1, "base": 0}
    assert architecture.reduced(graph)["top"] == {"middle"}
    assert architecture.circular(graph | {"base": {"top"}}) != set()


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
