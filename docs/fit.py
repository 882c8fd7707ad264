"""What fits a page of the site into its window: where keys may break, and the columns' names beside the cells."""

from __future__ import annotations

import html
import itertools
import re
from typing import Any

_CODE = re.compile(r"(?<!</span>)<code>([^<]*)</code>")  # inside a line: that of a block follows a span
_BREAKS = re.compile(r"(?<=[\w\])][._=/,:])(?=[\w\[(])|(?<=\w)(?=\[)")


def on_page_content(content: str, /, **_: Any) -> str:
    """Lets keys break after their punctuation, shows `\\|` as `|`, and labels the cells of tables for phones."""
    shown = _CODE.sub(lambda code: f"<code>{_BREAKS.sub('<wbr>', code[1].replace(chr(92) + '|', '|'))}</code>", content)
    return re.sub(r"<table>.*?</table>", _labeled, shown, flags=re.S)


def _labeled(table: re.Match[str]) -> str:
    """Returns a table each of whose cells has the name of its column as `data-label`."""
    names = [
        html.escape(html.unescape(re.sub(r"<[^>]*>", "", name)))
        for name in re.findall(r"<th[^>]*>(.*?)</th>", table[0])
    ]
    columns = itertools.cycle(names)
    return re.sub(r"<td", lambda _: f'<td data-label="{next(columns)}"', table[0])
