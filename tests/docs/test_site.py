"""The site, built and opened in a browser: the time is that of the build, about a minute, and of a hundred pages."""

import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from docs.generate import NOTEBOOKS, notebook_page
from lit_gans.cli.command import names as command_names
from tests.docs.blocks import ROOT
from tests.docs.browser import BROWSER, look

pytestmark = pytest.mark.timeout(900)
SEARCHES = {
    "own photos": "/guides/photos/",
    "train on my own images": "/guides/photos/",
    "FAQ": "/faq/",
    "colab": "/faq/",
    "out of memory": "/faq/",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built strictly."""
    folder = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder))
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    return folder


@pytest.fixture(scope="module")
def seen(site, tmp_path_factory):
    """What a browser sees of all pages, and finds."""
    if BROWSER is None:
        pytest.skip("no browser")
    return look(site, tmp_path_factory.mktemp("profile"), [*SEARCHES])


def test_every_page_fits_and_raises_no_error_on_a_desktop_and_on_a_phone(seen):
    assert seen["seen"] == {}


def test_a_search_finds_the_right_page_first(seen):
    assert {query: hit.partition("#")[0] for query, hit in seen["hits"].items()} == SEARCHES


def test_the_browser_notices_each_fault(tmp_path):
    """The oracle of the two tests above."""
    if BROWSER is None:
        pytest.skip("no browser")
    wide = "w" * 300
    parts = {
        "overflow": f"<p>{wide}</p>",
        "tables": f'<div style="overflow: auto"><table><tr><td>{wide}</td></tr></table></div>',
        "commands": f'<pre style="overflow: auto"><code>{wide}</code></pre>',
        "keys": '<table style="word-break: break-all; width: 2em"><tr><td><code>abcdefgh</code></td></tr></table>',
        "pictures": '<img src="/none.png">',
        "literals": "<p>a `b`</p>",
        "console": "<script>console.error('x')</script>",
    }
    (tmp_path / "index.html").write_text("<html><head></head><body class='md-content'>Good</body></html>")
    for name, part in parts.items():
        (tmp_path / f"{name}.html").write_text(f"<html><head></head><body class='md-content'>{part}</body></html>")
    (tmp_path / "profile").mkdir()
    found = look(tmp_path, tmp_path / "profile", [], widths=(390,))["seen"]
    assert {place.removesuffix(".html at 390") for place in found} == {*parts}, found
    assert all(name in found[f"{name}.html at 390"] for name in parts)


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
        assert 'data-md-component="source"' not in text, "the theme's link to the repository asks api.github.com"


def test_generated_pages_name_commands_keys_and_classes(site):
    paths = {name: site / "reference" / name / "index.html" for name in ("cli", "configuration", "losses")}
    pages = {name: path.read_text() for name, path in paths.items()}
    assert all(f">lit-gans {name}<" in pages["cli"] for name in command_names())
    assert "model.generator_width" in text_of(pages["configuration"])
    assert "OptimizerConfig(name=Adam, lr=0.0002, betas=[0.0,0.9]" in text_of(pages["configuration"])
    assert 'id="lit_gans.training.losses.hinge_discriminator"' in pages["losses"]
    assert "<!-- test:" not in (site / "get_started" / "index.html").read_text()


def test_examples_of_docstrings_are_code(site):
    """Google's `Example:` is a note to mkdocstrings, whose `>>>` are quotations; `Examples:` is code."""
    assert not [path for path in site.rglob("index.html") if "<blockquote>" in path.read_text()]


def test_each_image_of_a_notebook_is_shown():
    for name in NOTEBOOKS:
        notebook = (ROOT / f"notebooks/{name}.ipynb").read_text()
        stored = notebook.count('"image/png"') + notebook.count('"image/svg+xml"')
        text, pictures = notebook_page(name)
        assert len(pictures) == len({*pictures.values()}) == text.count("![") == stored


@pytest.mark.parametrize("path", sorted((ROOT / "docs/images").glob("*.svg")), ids=lambda path: path.name)
def test_drawings_can_be_read_on_a_phone(path):
    """A phone shows 358 pixels of their width."""
    text = path.read_text()
    width = float(re.search(r'viewBox="0 0 (\d+)', text)[1])
    assert min(map(float, re.findall(r'font-size="(\d+)"', text))) * min(1, 358 / width) > 12


def test_each_argument_of_a_shared_entry_has_its_type_and_its_default(site):
    """`real_weight, fake_weight: ...` in a docstring is one entry for two arguments."""
    page = (site / "reference" / "modules" / "index.html").read_text()
    said = text_of(page).replace("\N{EN DASH}", ":")
    assert not re.findall(r"\w+, \w+ : ", said), "entries of several arguments"
    assert re.search(r"alpha \(float, default: 0\.1 \) : ", said)
    assert re.search(r"beta \(float, default: 0\.1 \) : ", said)


class Text(HTMLParser):
    """Collects the text of an article without scripts and styles, and its paragraphs outside lists and tables.

    In a paragraph, code inside a line is one word.
    """

    def __init__(self):
        super().__init__()
        self.shown, self.paragraphs, self.open = [], [], Counter()

    def handle_starttag(self, tag, attributes):
        self.open[tag] += 1
        if tag == "p":
            self.paragraphs.append("")
        if tag == "code":
            self.tell("Code")

    def handle_endtag(self, tag):
        self.open[tag] -= 1

    def handle_data(self, data):
        if not self.open["script"] and not self.open["style"]:
            self.shown.append(data)
            if not self.open["code"]:
                self.tell(data)

    def tell(self, text):
        if self.open["p"] and not any(self.open[tag] for tag in ("li", "table")):
            self.paragraphs[-1] += text


def read(page):
    """Returns the parsed article of a page."""
    parser = Text()
    parser.feed(re.search(r"<article.*?</article>", page, re.S)[0].replace("<wbr>", ""))
    return parser


def text_of(page):
    """Returns the text of the article of a page, in one line."""
    return " ".join("".join(read(page).shown).split())


def count(text):
    """Returns the number of words: what has a letter or a digit."""
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def words(paths):
    """Returns the number of words of pages."""
    return sum(count(text_of(path.read_text())) for path in paths)


def sentences(page):
    """Returns the sentences of the paragraphs of a page: they end with `.`, `!` or `?` before a capital or a digit."""
    lines = (" ".join(paragraph.split()) for paragraph in read(page).paragraphs)
    return [
        part for line in lines for part in re.split(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(]?[A-Z0-9])", line) if count(part)
    ]


def not_reference(site):
    return [path for path in site.rglob("index.html") if site / "reference" not in path.parents]


def test_the_site_can_be_read_to_its_end(site):
    pages = [*site.rglob("index.html")]
    others = not_reference(site)
    # tables that grow with what is recorded
    tables = {site / "results" / "index.html", site / "tutorials" / "scaling" / "index.html"}
    assert words({*others} - tables) < 23_200
    assert words({*pages} - {*others}) < 33_700


def test_sentences_are_short(site):
    """At most 20 words on average on each page."""
    found = {path: sentences(path.read_text()) for path in not_reference(site)}
    means = {path: sum(map(count, said)) / len(said) for path, said in found.items()}
    assert {str(path.parent.relative_to(site)): mean for path, mean in means.items() if mean > 20} == {}


def test_sentences_are_told_apart():
    told = "<p>One <code>a b.C d</code>, two. <em>Three</em>: 1.5 of e.g. four? (Five) six.</p>"
    assert sentences(f"<article>{told}<ul><li><p>x y</p></ul></article>") == [
        "One Code, two.",
        "Three: 1.5 of e.g. four?",
        "(Five) six.",
    ]
