"""What fits a page of the site into its window: where code may break, and the columns' names beside the cells."""

from __future__ import annotations

import html
import itertools
import re
from typing import Any

_CODE = re.compile(r"(?<!</span>)<code>([^<]*)</code>")  # inside a line: that of a block follows a span
_BREAKS = re.compile(r"(?<=[\w\])][._=/,:|])(?=[\w\[(])|(?<=\w)(?=\[)|(?<= )|(?<=\w{40})(?=\w)")  # hashes are long
_LINE = re.compile(r'(<span id="line-[\d-]+")>(?:<span class="w">( +)</span>|( +))')  # of a block, with its indentation
_BRACKET = re.compile(r'(<span class="p">[^<]*[(\[{]</span>)')
_OPTION = re.compile(r"(?<![\w=/.-])(?:--[\w-]+|lit-gans)(?![\w-]|[^<]*>)")  # whose hyphens are no place to break
_TEXT = re.compile(r'<div class="language-text highlight"(?=><pre>(.*?)</pre>)', re.S)
_FEW = 3  # lines that may be wrapped: sentences


def on_page_content(content: str, /, page: Any, **_: Any) -> str:
    """Lets code break where it reads well, indents its continued lines, and labels the cells of tables for phones."""
    content = _CODE.sub(lambda code: f'<code class="breaks">{_breakable(code[1])}</code>', content)
    content = re.sub(r"<pre>.*?</pre>", _block, content, flags=re.S)
    content = _TEXT.sub(_with_columns, content)
    _break_titles(page.toc)
    return re.sub(r"<table>.*?</table>", _labeled, content, flags=re.S)


def _breakable(code: str) -> str:
    return _BREAKS.sub("<wbr>", code.replace(r"\|", "|"))


def _break_titles(items: Any) -> None:
    for item in items:
        item.title = re.sub(r"(?<=_)|(?<=[a-z])(?=[A-Z])", "<wbr>", item.title)
        _break_titles(item.children)


def _block(block: re.Match[str]) -> str:
    code = _OPTION.sub(lambda option: f'<span class="option">{option[0]}</span>', block[0])
    return _BRACKET.sub(r"\1<wbr>", _LINE.sub(_indented, code))


def _indented(line: re.Match[str]) -> str:
    spaces = line[2] or line[3]
    return f'{line[1]} style="--indent: {len(spaces)}"><span class="indent">{spaces}</span>'


def _with_columns(block: re.Match[str]) -> str:
    """Returns the tag of a block with the length of its longest line, which the style makes fit."""
    lines = html.unescape(re.sub(r"<[^>]*>", "", block[1])).splitlines()
    return f'{block[0]} style="--columns: {max(map(len, lines))}"' if len(lines) > _FEW else block[0]


def _labeled(table: re.Match[str]) -> str:
    """Returns a table each of whose cells has the name of its column as `data-label`."""
    names = [
        html.escape(html.unescape(re.sub(r"<[^>]*>", "", name)))
        for name in re.findall(r"<th[^>]*>(.*?)</th>", table[0])
    ]
    columns = itertools.cycle(names)
    return re.sub(r"<td", lambda _: f'<td data-label="{next(columns)}"', table[0])
