"""The README, the pages of the site and the tables that are generated."""

import re
import tomllib

import pytest

from docs import generate
from lit_gans import compose
from lit_gans.config.registry import gans
from lit_gans.config.signatures import meanings, schema
from tests.docs.blocks import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]  # those of the site are checked when it is built
_LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")


def test_the_readme_is_short():
    assert (ROOT / "README.md").read_text().count("\n") <= 150


def test_the_readme_and_the_site_name_the_versions_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = {need.partition(">=")[0]: need for need in project["dependencies"]}
    python = project["requires-python"].removeprefix(">=")
    torch, lightning = (re.fullmatch(r"\w+>=(2\.\d+)", needs[name])[1] for name in ("torch", "lightning"))
    said = f"Python {python} or later, torch {torch} or later, Lightning {lightning} or later"
    assert all(said in (ROOT / name).read_text() for name in ("README.md", "docs/get_started.md"))


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


def test_the_reference_has_every_registered_gan():
    entries = re.findall(r"^::: (\S+)$", (ROOT / "docs/reference/modules.md").read_text(), flags=re.M)
    paths = {f"{cls.__module__}.{cls.__name__}" for cls in gans().values()}
    assert {path for path in paths if path.startswith("lit_gans.")} <= {*entries}


def test_docstrings_give_the_meaning_of_each_key():
    """Every key of a GAN is explained, in its own docstring or in that of a base class."""
    for cls in gans().values():
        said = meanings(cls)
        assert not [name for name in schema(cls) if name != "_target_" and not said[name]], (
            f"{cls} explains no such argument"
        )


def test_every_subpackage_has_a_floor_and_a_description():
    folders = {path.parent.name for path in (ROOT / "lit_gans").glob("*/__init__.py")}
    assert folders == {*generate.rooms()}
    assert all(generate.rooms().values())
    assert "| 0 | `common` |" in generate.room_table()


def test_experiments_beside_published_numbers_measure_as_many_samples_as_the_page_says():
    table = (ROOT / "docs/tutorials/paper.md").read_text().partition("| experiment |")[2].partition("\n\n")[0]
    names = re.findall(r"`(\w+)`", table)
    assert len(names) > 5
    for name in names:
        metrics = compose(f"experiment={name}").metrics
        assert metrics.num_samples == 50_000, name
        assert metrics.extractor._target_.endswith(".InceptionExtractor"), name


def test_the_table_where_to_change_what_names_what_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| (a[n]? [^|]+) \| ([^|]+) \| ([^|]+) \|", text, flags=re.M)
    assert len(rows) > 10
    for _, edit, test in rows:
        for path in re.findall(r"`([\w./]+/[\w./]*)`", f"{edit} {test}"):
            assert (ROOT / path).exists(), path


def test_results_of_several_seeds_are_one_row_with_their_mean():
    rows = [line for line in generate.results().splitlines() if "experiment=cyclegan_emoji" in line]
    assert len(rows) == 1
    # the recorded FIDs are 66.285, 68.221 and 69.268
    assert rows[0].startswith("| `experiment=cyclegan_emoji seed=0,1,2` | 700 | 67.92 ± 1.5 |")
