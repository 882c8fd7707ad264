"""Code blocks of a Markdown file, and what HTML comments above one say to the tests.

Every block is run: Python is executed, YAML and TOML are read, and commands are run in a tiny form
(`tests/docs/running.py`). Comments change this:

- `<!-- test: add KEY=VALUE ... -->`: `lit-gans train` gets these overrides beside the tiny ones.
- `<!-- test: with OLD -> NEW; OLD -> NEW -->`: this text is replaced first, to make the block small.
- `<!-- test: slow, REASON -->`: run by `pytest -m slow`, otherwise only checked: its commands compose.
- `<!-- test: check, REASON -->`: cannot run in a test, and is checked as far as possible.

A block with a `title="FILE"`, or whose
first line is the comment `# FILE`, is also written to that file.
"""

from __future__ import annotations

import itertools
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
)
LANGUAGES = ("python", "bash", "yaml", "toml", "text")
_FENCE = re.compile(
    r"(?P<comments>(?:^<!-- test: [^\n]* -->\n)*)^```(?P<language>\S*)(?P<info>[^\n]*)\n(?P<code>.*?)^```$", re.M | re.S
)
_COMMENT = re.compile(r"<!-- test: (?P<kind>\w*),? ?(?P<text>.*) -->")
_KINDS = ("add", "with", "slow", "check")
_FILE = re.compile(r"(?:# | title=\")(?P<path>[\w./-]+\.(?:py|yaml))\"?\n")


@dataclass
class Block:
    """A fenced block of a page.

    Args:
        page: path of the page in the repository.
        line: number of the line before the code.
        language: of the fence.
        info: what follows the language.
        source: the code as the page has it, without the fences.
        comments: texts of the comments above, by kind.
    """

    page: str
    line: int
    language: str
    info: str
    source: str
    comments: dict[str, str]

    def __post_init__(self) -> None:
        for kind, text in self.comments.items():
            assert kind in _KINDS, f"{self.place}: a comment is one of {_KINDS}, not {kind}"
            assert text, f"{self.place}: say more than {kind}"

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def overrides(self) -> list[str]:
        """Further overrides of the commands that train."""
        return shlex.split(self.comments.get("add", ""))

    @property
    def file(self) -> str | None:
        """The file that the block is, if its title or its first line says so."""
        found = _FILE.match(f"{self.info}\n") or _FILE.match(self.source)
        return found["path"] if found else None

    @property
    def code(self) -> str:
        """The code with the replacements that a comment asks for."""
        code = self.source
        for pair in self.comments["with"].split("; ") if "with" in self.comments else ():
            old, new = pair.split(" -> ")
            assert old in code, f"{self.place}: there is no '{old}' to be replaced"
            code = code.replace(old, new)
        return code


def blocks(path: Path) -> list[Block]:
    """Returns the fenced blocks of a page in their order."""
    text, page = path.read_text(), str(path.relative_to(ROOT))
    found = []
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start("code"))
        comments = dict(_COMMENT.findall(match["comments"]))
        found.append(Block(page, line, match["language"], match["info"], match["code"], comments))
    return found


def steps(block: Block) -> list[list[str]]:
    """Returns the commands of a shell block as words, without `&&`."""
    lines = block.code.replace("\\\n", " ").splitlines()
    commands = [words for line in lines if (words := shlex.split(line, comments=True))]
    groups = [itertools.groupby(words, lambda word: word == "&&") for words in commands]
    return [list(words) for group in groups for separator, words in group if not separator]
