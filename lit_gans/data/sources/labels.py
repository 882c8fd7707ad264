"""Reads the classes of images from a CSV file, from StyleGAN's `dataset.json`, or from a file beside each image.

A CSV file is read no matter which operating system and program wrote the file.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import logging
import os
from collections import Counter
from pathlib import Path
from typing import Any

from lit_gans.common.errors import RefusedInput, one_line, refusing
from lit_gans.common.names import Lookup, as_path, as_path_without_case, composed, first_three
from lit_gans.data.archives import open_file
from lit_gans.data.files import LABELS, Found, OnError, leave_out

logger = logging.getLogger(__name__)

STYLEGAN_TABLE = "dataset.json"
_TABLE_FORMAT = '{"labels": [["FILE", CLASS], ...]} or {"labels": null}'
_SEPARATORS = ",;\t|"
_COLUMNS = ("file", "class")
_CODEPAGES = ("cp1252", "mac_roman", "cp850", "cp1251", "gb18030", "shift_jis")
_BYTE_ORDER_MARKS = {
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe\0\0": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
_COMPARED = 20_000  # maximum number of file names to search for a name that is similar to an unknown name

Rows = list[tuple[str, str]]


class VectorLabel(RefusedInput):
    """Raised if a label is a vector, such as the pose of a camera, and therefore no class."""


def is_stylegan_table(table: Path) -> bool:
    """Returns whether a JSON file is a `dataset.json` of StyleGAN: an object with the key `labels`."""
    with refusing(f"{table} cannot be read"), open_file(table) as file:
        content = _json_in(file.read(), str(table))
    return isinstance(content, dict) and "labels" in content


def classes_in(table: Path, root: Path, paths: list[Path], on_error: OnError) -> tuple[dict[Path, str], list[str]]:
    """Reads the class of each image from a CSV file with the columns `file` and `class`, or from a `dataset.json`.

    The latter has the format of StyleGAN's `dataset_tool.py`: {"labels": [["00000/img00000000.png", 6], ...]}. If its
    labels are null, the images have no classes, and the returned dictionary is empty.

    A file name in the table can differ from the name in the folder in slashes, Unicode form and case, if exactly one
    image matches.

    Args:
        table: path of the CSV or JSON file.
        root: folder to which the file names in the table are relative.
        paths: paths of the images in the folder.
        on_error: `raise` raises an error if an image has no class or a row names no image; `skip` leaves out such
            images and rows.

    Returns:
        The class of each image by path, and a line of text for each image that has no class.

    Raises:
        RefusedInput: the file cannot be read, a column is missing, a name is ambiguous, or the rows do not match the
            images.
    """
    is_found = table == root / STYLEGAN_TABLE
    where = str(table) if is_found else f"data.labels={table}"
    names = Lookup(((path.relative_to(root).as_posix(), path) for path in paths), as_path, as_path_without_case)
    with refusing(f"{where} cannot be read"):
        with open_file(table) as file:
            content = file.read()
        is_json = content.decode(_encoding_of(content) or "utf-8", "replace").lstrip().startswith("{")
        rows, encoding = (_json_rows(content, where), "") if is_json else _best(content, root, names, where)
    if rows is None:
        return {}, []
    pairs = [(_found(file, root, names, where), file, name) for file, name in rows]
    times = Counter(path or root / file for path, file, _ in pairs)
    if len(times) < len(rows):
        again = os.path.relpath(times.most_common(1)[0][0], root)
        raise RefusedInput(
            f"{where}: {len(rows) - len(times)} of its {len(rows)} rows name a file again, such as {again}: each image"
            " needs exactly one class."
        )
    classes = {path: name for path, _, name in pairs if path and name}
    unknown = [file for path, file, name in pairs if name and path is None]
    unlabeled = [path for path in paths if path not in classes]
    if unknown:
        problem = f"{len(unknown)} of its {len(rows)} rows name no image in {root}, such as {unknown[0]}"
        leave_out(f"{where}: {problem}{_difference(unknown[0], root, paths)}{encoding}", on_error)
    if unlabeled:
        problem = f"{len(unlabeled)} of the {len(paths)} images in {root} have no class in the file"
        leave_out(f"{where}: {problem}, such as {os.path.relpath(unlabeled[0], root)}{encoding}", on_error)
    if encoding:
        logger.warning("%s%s", where, encoding)
    name = STYLEGAN_TABLE if is_found else "data.labels"
    left_out = [f"{path.relative_to(root)} has no class in {name}." for path in unlabeled]
    return {path: classes[path] for path in paths if path in classes}, left_out


def classes_beside(found: Found, on_error: OnError) -> tuple[dict[Path, str], list[str]]:
    """Reads the class of each image from the file beside it that has the same name and the extension .cls or .json.

    This is the format of WebDataset: a .cls file contains the class, and a .json file contains the class or an object
    with the key `label`. If no file contains a class, the returned dictionary is empty.

    Args:
        found: images, and the files that can contain their classes.
        on_error: `raise` raises an error if an image has no class or a class has no image; `skip` leaves out both.

    Returns:
        The class of each image by path, and a line of text for each image that has no class.

    Raises:
        RefusedInput: a file cannot be read, or the files do not match the images.
    """
    images: dict[Path, list[Path]] = {}
    for path in found.images:
        images.setdefault(path.with_suffix(""), []).append(path)
    # a .cls file is preferred, because a .json file might contain only a description
    for ending in LABELS:
        tables = {path.with_suffix(""): path for path in found.tables if path.suffix.lower() == ending}
        classes = {stem: _class_beside(tables[stem]) for stem in images if stem in tables}
        if any(classes.values()):
            break
    else:
        num = sum(path.name != STYLEGAN_TABLE for path in found.tables)
        if num:
            logger.warning(
                "%s: %d .cls and .json files contain no class of an image, and are not used: the class of NAME.jpg is"
                " the text of NAME.cls, or `label` in NAME.json.",
                found.folder,
                num,
            )
        return {}, []
    kind = f"{ending} file with a class"
    unlabeled = [path for stem, paths in images.items() if not classes.get(stem) for path in paths]
    unknown = [path for stem, path in tables.items() if stem not in images]
    if unlabeled:
        what = f"{len(unlabeled)} of the {len(found.images)} images in {found.folder} have no {kind}"
        leave_out(f"{what}: {first_three(path.relative_to(found.folder) for path in unlabeled)}", on_error)
    if unknown:
        what = f"{len(unknown)} of the {len(tables)} {ending} files in {found.folder} have no image"
        leave_out(f"{what}: {first_three(path.relative_to(found.folder) for path in unknown)}", on_error)
    left_out = [f"{path.relative_to(found.folder)} has no {kind}." for path in unlabeled]
    return {path: name for stem, name in classes.items() if name for path in images[stem]}, left_out


def _class_beside(table: Path) -> str:
    """Returns the class in a .cls or .json file, or an empty string if the file contains no class."""
    with refusing(f"{table} cannot be read"):
        with open_file(table) as file:
            content = file.read()
        if table.suffix.lower() != ".json":
            return composed(content.decode(_encoding_of(content) or "utf-8"))
        about = json.loads(content)
        return _class_of(about.get("label") if isinstance(about, dict) else about, str(table))


def _json_rows(content: bytes, where: str) -> Rows | None:
    """Returns the file name and the class of each row of a `dataset.json`, or None if its labels are null."""
    labels = _json_in(content, where).get("labels", ...)
    if labels is None:
        return None
    rows = list(labels.items()) if isinstance(labels, dict) else labels
    if not isinstance(rows, list) or not all(isinstance(row, list | tuple) and len(row) == 2 for row in rows):
        raise RefusedInput(f"{where}: expected {_TABLE_FORMAT}.")
    return [(str(file), _class_of(label, f"{where}: {file}")) for file, label in rows]


def _json_in(content: bytes, where: str) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise RefusedInput(f"{where} is not JSON ({one_line(error)}): expected {_TABLE_FORMAT}.") from error


def _class_of(label: Any, where: str) -> str:
    """Returns a label of a JSON file as the name of a class, or an empty string for null.

    Raises:
        VectorLabel: the label is a vector.
        RefusedInput: the label is neither a whole number nor a name.
    """
    if isinstance(label, list):
        raise VectorLabel(
            f"{where}: the label is a vector of {len(label)} numbers, expected a whole number or a name: replace a"
            " one-hot vector by the index of its 1."
        )
    if label is None or (isinstance(label, int | str) and not isinstance(label, bool)):
        return "" if label is None else composed(str(label))
    raise RefusedInput(f"{where}: the label is {str(label)[:40]}, expected a whole number or a name.")


def _encoding_of(content: bytes) -> str | None:
    """Returns the encoding of a text that begins with a byte-order mark or is UTF-16, otherwise None."""
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS.items() if content.startswith(mark)), None)
    if encoding is None and b"\0" in content[:4]:
        return "utf-16-le" if content[1:2] == b"\0" else "utf-16-be"
    return encoding


def _best(content: bytes, root: Path, names: Lookup[Path], where: str) -> tuple[Rows, str]:
    """Decodes a table. Returns its rows, and a remark about the encoding if the encoding had to be guessed.

    A table that is not Unicode is decoded with the encoding in which the largest number of rows name an image.
    """
    encoding = _encoding_of(content)
    try:
        return _rows(content.decode(encoding or "utf-8"), root, names, where), ""
    except UnicodeDecodeError as error:
        if encoding or any(byte < 32 and byte not in b"\t\n\r" for byte in content):
            raise
        failed = error
    tables: list[tuple[int, Rows, str]] = []
    for codepage, errors in (*((name, "strict") for name in _CODEPAGES), ("utf-8", "surrogateescape")):
        try:
            rows = _rows(content.decode(codepage, errors), root, names, where)
        except UnicodeDecodeError:
            continue
        tables.append((sum(len(names.find(file)) == 1 for file, _ in rows), rows, codepage))
    if not tables:
        raise failed
    _, rows, codepage = max(tables, key=lambda table: table[0])
    return rows, f" (it is not UTF-8 and was read as {codepage})"


def _rows(text: str, root: Path, names: Lookup[Path], where: str) -> Rows:
    """Returns the file name and the class of each row."""
    lines = io.StringIO(text, newline="")
    above = int(text[:4].lower() == "sep=")  # 1 if Excel has written a line `sep=` above the header
    if above:
        lines.readline()
    start = lines.tell()
    headers = {}
    for separator in _SEPARATORS:
        lines.seek(start)
        header = [cell.strip() for cell in next(csv.reader(lines, delimiter=separator, skipinitialspace=True), [])]
        lower = [cell.strip("'").casefold() for cell in header]
        headers[separator] = header
        has_names = {*_COLUMNS} <= {*lower}
        # if there is no header, the first line already names an image
        if has_names or (len(header) == 2 and _found(header[0], root, names, where)):
            first, second = map(lower.index, _COLUMNS) if has_names else (0, 1)
            break
    else:
        raise RefusedInput(
            f"{where}: its columns are {first_three(headers[',']) or 'missing'}, expected file and class in the first"
            " line."
        )
    if not has_names:
        lines.seek(start)
    table = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    pairs = []
    for row in table:
        more = [cell for cell in row[len(header) :] if cell.strip()]
        if more:
            raise RefusedInput(
                f"{where}: line {above + has_names + table.line_num} has more cells than the first line, such as"
                f' {more[0]!r}: put names that contain a {separator!r} in quotes, such as "a{separator} b".'
            )
        row += [""] * len(header)
        pairs.append((row[first], composed(row[second])))
    return [(file, name) for file, name in pairs if file.strip() or name]


def _found(file: str, root: Path, names: Lookup[Path], where: str) -> Path | None:
    """Returns the path of the image that a row names, or None if there is no such image.

    Raises:
        RefusedInput: the name matches several images.
    """
    prefix = f"{composed(root.resolve().name)}/"
    candidates = [file]
    if Path(file).is_absolute():
        candidates = [
            Path(file).relative_to(base).as_posix()
            for base in (root, root.resolve())
            if Path(file).is_relative_to(base)
        ]
    elif as_path(file).startswith(prefix):  # the path is relative to the parent of the folder
        candidates.append(as_path(file).removeprefix(prefix))
    matches = next(filter(None, map(names.find, candidates)), [])
    if len(matches) > 1:
        several = " and ".join(sorted(path.relative_to(root).as_posix() for path in matches))
        raise RefusedInput(
            f"{where}: {file!r} matches {several}: the names of images must differ in more than case and Unicode form."
        )
    return matches[0] if matches else None


def _difference(file: str, root: Path, paths: list[Path]) -> str:
    """Returns a hint that names the image most similar to an unknown file name, or an empty string."""
    same = [path for path in paths if as_path_without_case(path.name) == as_path_without_case(file).rpartition("/")[2]]
    named = {as_path_without_case(path.relative_to(root).as_posix()): path for path in paths[:_COMPARED]}
    close = same[:1] or [named[name] for name in difflib.get_close_matches(as_path_without_case(file), named, 1, 0.8)]
    return f" (an image there is {close[0].relative_to(root).as_posix()})" if close else ""
