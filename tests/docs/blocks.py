"""Code blocks of a Markdown file, and what an HTML comment above one says to the tests.

- `<!-- test: run KEY=VALUE ... -->`: commands are run, not only composed; `lit-gans train` gets these overrides too.
- `<!-- test: with OLD -> NEW; OLD -> NEW -->`: a Python block is executed with this text replaced, to make it small.
- `<!-- test: skip, REASON -->`: nothing is done with the block.

Without a comment Python blocks are executed, YAML blocks are read, and each command of a shell block must compose. A
block with a `title="FILE"`, or whose first line is the comment `# FILE`, is also written to that file.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
LANGUAGES = ("python", "bash", "yaml", "toml", "text")
_FENCE = re.compile(
    r"(?:^<!-- test: (?P<test>.*?) -->\n)?^```(?P<language>\S*)(?P<info>[^\n]*)\n(?P<code>.*?)^```$", re.M | re.S
)
_FILE = re.compile(r"(?:# | title=\")(?P<path>[\w./-]+\.(?:py|yaml))\"?\n")


@dataclass
class Block:
    """A fenced block of a page.

    Args:
        place: file and line.
        language: of the fence.
        info: what follows the language.
        code: without the fences.
        test: what the comment above says, without the word `test`.
    """

    place: str
    language: str
    info: str
    code: str
    test: str

    @property
    def skipped(self) -> bool:
        return self.test.startswith("skip")

    @property
    def overrides(self) -> list[str] | None:
        """The overrides with which commands are run, or None where they are only composed."""
        return shlex.split(self.test)[1:] if self.test.split()[:1] == ["run"] else None

    @property
    def file(self) -> str | None:
        """The file that the block is, if its title or its first line says so."""
        found = _FILE.match(f"{self.info}\n") or _FILE.match(self.code)
        return found["path"] if found else None

    def replaced(self) -> str:
        """Returns the code with the replacements that the comment asks for."""
        code = self.code
        for pair in self.test.removeprefix("with ").split("; ") if self.test.startswith("with ") else ():
            old, new = pair.split(" -> ")
            assert old in code, f"{self.place}: there is no '{old}' to be replaced"
            code = code.replace(old, new)
        return code


def blocks(path: Path) -> list[Block]:
    """Returns the fenced blocks of a page in their order."""
    text = path.read_text()
    found = []
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start("code"))
        place = f"{path.relative_to(ROOT)}:{line}"
        found.append(Block(place, match["language"], match["info"], match["code"], (match["test"] or "").strip()))
    return found


def commands(block: Block) -> list[list[str]]:
    """Returns the commands of a shell block as words."""
    lines = block.code.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]
