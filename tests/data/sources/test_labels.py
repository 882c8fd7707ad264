"""Names in tables, folders and settings are matched as a person matches them, or the message says what differs."""

import os
import unicodedata

import pytest
from PIL import Image

from lit_gans.common.errors import RefusedInput
from lit_gans.data.sources.folder import Folder
from lit_gans.data.sources.paired import PairedFolder

COLORS = {"Äpfel/Grün.png": 10, "Äpfel/b c.PNG": 20, "d.png": 30}
ROWS = [("Äpfel/Grün.png", "süß"), ("Äpfel/b c.PNG", "herb"), ("d.png", "süß")]
CLASSES = {10: "süß", 20: "herb", 30: "süß"}


def nfd(text):
    return unicodedata.normalize("NFD", text)


def table(rows=ROWS, separator=",", header=("file", "class"), quote="", end="\n"):
    lines = [header, *rows] if header else rows
    return "".join(separator.join(f"{quote}{cell}{quote}" for cell in line) + end for line in lines)


@pytest.fixture
def labeled(tmp_path):
    """A datamodule of gray pictures, with the classes of the bytes of a table."""

    def data(content, files=COLORS, **settings):
        for name, value in files.items():
            path = tmp_path / "photos" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), value).save(path, "PNG")
        (tmp_path / "labels.csv").write_bytes(content.encode() if isinstance(content, str) else content)
        sizes = {"image_size": 8, "channels": 1, "batch_size": 1, "cache": str(tmp_path / "cache")}
        return Folder(str(tmp_path / "photos"), labels=str(tmp_path / "labels.csv"), **(sizes | settings))

    return data


def shown(data):
    """The class of each gray value."""
    numbers = data.packed.images[:, 0, 0, 0].tolist(), data.packed.labels.tolist()
    return {value: data.classes[label] for value, label in zip(*numbers, strict=True)}


def changed(change):
    return [(change(file), name) for file, name in ROWS]


TABLES = {
    "as it is": table(),
    "decomposed letters": nfd(table()),
    "backslashes": table(changed(lambda file: file.replace("/", "\\"))),
    "semicolons": table(separator=";"),
    "tabs": table(separator="\t"),
    "semicolons after Excel's line": "sep=;\r\n" + table(separator=";", end="\r\n"),
    "lines of the old Mac": table(end="\r"),
    "a byte-order mark": "\ufeff" + table(),
    "UTF-16": table(separator="\t").encode("utf-16"),
    "UTF-16 without a mark": table().encode("utf-16-le"),
    "UTF-16, big-endian": table().encode("utf-16-be"),
    "Latin-1": table(separator=";").encode("latin-1"),
    "a code page of DOS": table().encode("cp850"),
    "Mac Roman": table().encode("mac_roman"),
    "another case": table(changed(str.upper)),
    "a dot": table(changed(lambda file: f"./{file}")),
    "a dot and backslashes": table(changed(lambda file: ".\\" + file.replace("/", "\\"))),
    "the folder's own name": table(changed(lambda file: f"photos/{file}")),
    "blanks": table([(f" {file} ", f" {name} ") for file, name in ROWS], header=(" file", "class ")),
    "quotes": table(quote='"'),
    "quotes after blanks": table(quote='"', separator=", "),
    "single quotes": table(changed(lambda file: f"'{file}'")),
    "a header in capitals": table(header=("File", "Class")),
    "more columns": table([("1", name, file) for file, name in ROWS], header=("number", "class", "file")),
    "no header": table(header=None),
    "no header, semicolons, decomposed": nfd(table(header=None, separator=";")),
    "a comma at the end of rows": table().replace("\n", ",\n").replace("class,", "class"),
    "empty rows at the end": table(separator=";") + ";\n;\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_another_system_or_program_names_the_same_images(labeled, name):
    data = labeled(TABLES[name])
    assert data.classes == ["herb", "süß"]
    assert shown(data) == CLASSES


def test_absolute_paths_in_the_folder_are_its_images(labeled, tmp_path):
    assert shown(labeled(table(changed(lambda file: str(tmp_path / "photos" / file))))) == CLASSES


def test_decomposed_names_in_the_folder_are_found(labeled):
    files = {nfd(name): value for name, value in COLORS.items()}
    assert shown(labeled(table(), files)) == CLASSES
    assert shown(labeled(table().encode("latin-1"), files)) == CLASSES


def test_equal_names_come_first(labeled):
    files = {"a.png": 10, "A.png": 20, "b\\c.png": 30, "b/c.png": 40}
    rows = [("a.png", "w"), ("A.png", "x"), ("b\\c.png", "y"), ("b/c.png", "z")]
    assert shown(labeled(table(rows), files)) == {10: "w", 20: "x", 30: "y", 40: "z"}


def test_an_ambiguous_name_is_refused(labeled):
    with pytest.raises(
        RefusedInput, match=r"labels.csv: 'A.PNG' matches A.png and a.png: the names of images must differ in more"
    ):
        labeled(table([("A.PNG", "x")]), {"a.png": 10, "A.png": 20}, on_error="skip")


def test_two_rows_of_one_image_are_refused_in_whatever_form(labeled):
    rows = [*ROWS, (nfd("./Äpfel\\Grün.png"), "herb")]
    with pytest.raises(RefusedInput, match=r"1 of its 4 rows name a file again, such as Äpfel/Grün.png"):
        labeled(table(rows))


@pytest.mark.parametrize(
    ("file", "nearest"),
    [
        ("C:\\Bilder\\d.png", "d.png"),
        ("d.jpg", "d.png"),
        ("Äpfel/Gruen.png", "Äpfel/Grün.png"),
        ("/far/away/b c.png", "Äpfel/b c.PNG"),
    ],
)
def test_an_unknown_name_is_compared_with_the_most_similar_one(labeled, file, nearest):
    with pytest.raises(RefusedInput) as refused:
        labeled(table([*ROWS, (file, "herb")]))
    assert f"such as {file} (an image there is {nearest})" in str(refused.value)


def test_an_encoding_other_than_utf_8_is_reported(labeled, caplog):
    labeled(table().encode("latin-1"))
    assert "labels.csv (it is not UTF-8 and was read as cp1252)" in caplog.text
    with pytest.raises(RefusedInput, match=r"rows name no image in .* \(it is not UTF-8 and was read as cp1252\)"):
        labeled(table([*ROWS, ("weiß.png", "herb")]).encode("latin-1"))
    caplog.clear()
    labeled(TABLES["UTF-16"])
    assert "was read as" not in caplog.text


def test_names_of_bytes_that_are_no_utf8_are_found(labeled):
    """As on a disk whose files were named by a program of another encoding."""
    name = os.fsdecode("Grün.png".encode("latin-1"))
    files = {name: 10, "b.png": 20}
    assert shown(labeled("file,class\nGrün.png,x\nb.png,y\n".encode("latin-1"), files)) == {10: "x", 20: "y"}


def test_images_without_a_class_are_counted_in_the_pack_and_change_it(labeled):
    first = labeled(table(), on_error="skip").packed
    assert first.about["skipped"] == []
    second = labeled(table(), {"e.png": 40}, on_error="skip").packed
    assert second.path != first.path
    assert second.about["skipped"] == ["e.png has no class in data.labels."]


# ---- files beside the images, and dataset.json


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("ending", [".cls", ".json"])
def test_classes_beside_images_in_any_unicode_encoding(tmp_path, encoding, ending):
    for value, (name, used) in enumerate((("7", "utf-8"), ("7", encoding), ("8", encoding))):
        Image.new("L", (8, 8), value).save(tmp_path / f"{value}.png")
        (tmp_path / f"{value}{ending}").write_bytes(name.encode(used))
    assert shown(Folder(str(tmp_path), image_size=8, channels=1, cache=str(tmp_path))) == {0: "7", 1: "7", 2: "8"}


@pytest.mark.parametrize(("file", "text"), [("0.json", '{"class": 1}'), ("mask.cls", "1")])
def test_files_that_give_no_image_a_class_are_named(tmp_path, caplog, file, text):
    Image.new("L", (8, 8), 0).save(tmp_path / "0.png")
    (tmp_path / file).write_text(text, encoding="utf-8")
    data = Folder(str(tmp_path), image_size=8, channels=1, cache=str(tmp_path / "cache"))
    assert data.classes == []
    assert f"{tmp_path}: 1 .cls and .json files contain no class of an image, and are not used" in caplog.text


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_dataset_json_in_another_encoding_and_images_that_it_does_not_name(tmp_path, encoding):
    for value in range(3):
        Image.new("L", (8, 8), value).save(tmp_path / f"{value}.png")
    (tmp_path / "dataset.json").write_bytes('{"labels": [["0.png", 7], ["1.png", 8]]}'.encode(encoding))
    data = Folder(str(tmp_path), image_size=8, channels=1, cache=str(tmp_path), on_error="skip")
    assert shown(data) == {0: "7", 1: "8"}
    assert data.packed.about["skipped"] == ["2.png has no class in dataset.json."]


# ---- other names


def test_class_folders_are_composed_and_so_are_weights(tmp_path):
    for name, value in ((nfd("Äpfel"), 10), ("Zebra", 20), ("Ähren", 30)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("L", (8, 8), value).save(tmp_path / "photos" / name / "a.png")
    weights = {nfd("Ähren"): 1.0, "Äpfel": 2.0, " Zebra ": 3.0}
    given = {"image_size": 8, "channels": 1, "cache": str(tmp_path / "cache")}
    data = Folder(str(tmp_path / "photos"), class_weights=weights, **given)
    assert data.classes == ["Zebra", "Ähren", "Äpfel"], "the order does not depend on the system"
    assert data.weights_of_classes() == [3, 1, 2]
    assert shown(data) == {10: "Äpfel", 20: "Zebra", 30: "Ähren"}


def paired(tmp_path, first, second, **settings):
    for tree, names in (("A", first), ("B", second)):
        for value, name in enumerate(names):
            path = tmp_path / "pairs" / tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), 10 * value).save(path)
    given = {"image_size": 8, "channels": 1, "cache": str(tmp_path / "cache"), **settings}
    data = PairedFolder(str(tmp_path / "pairs"), **given)
    both = data.halves(data.packed.images)
    return {
        tuple(values) for values in zip(*(both[name][:, 0, 0, 0].tolist() for name in ("input", "image")), strict=True)
    }


def test_partners_may_differ_in_unicode_form_and_case(tmp_path):
    first, second = ["Grün.png", "b.JPG", "c.png"], [nfd("Grün.bmp"), "C.png", "B.png"]
    assert paired(tmp_path, first, second) == {(0, 0), (10, 20), (20, 10)}


def test_equal_partners_come_first(tmp_path):
    assert paired(tmp_path, ["a.png", "A.png"], ["A.png", "a.png"]) == {(0, 10), (10, 0)}


def test_ambiguous_partners_are_refused(tmp_path):
    with pytest.raises(RefusedInput, match=r"B/a.png has several partners, .*A/a.jpg and .*A/a.png: give each pair"):
        paired(tmp_path, ["a.png", "a.jpg"], ["a.png"], on_error="skip")


def test_images_without_a_partner_are_counted(tmp_path):
    with pytest.raises(RefusedInput, match="2 images in A/ and B/ have no partner with the same name"):
        paired(tmp_path, ["a.png", "b.png"], ["a.png", "c.png"])
    assert paired(tmp_path, ["a.png", "b.png"], ["a.png", "c.png"], on_error="skip") == {(0, 0)}
    data = PairedFolder(
        str(tmp_path / "pairs"), image_size=8, channels=1, cache=str(tmp_path / "cache"), on_error="skip"
    )
    assert data.packed.about["skipped"] == [f"{name} has no partner of its name." for name in ("A/b.png", "B/c.png")]


def test_images_beside_class_folders_disable_the_classes_with_a_log_line(tmp_path, caplog):
    caplog.set_level("INFO")
    for name in ("cover.png", "cat/a.png", "dog/b.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8)).save(tmp_path / "photos" / name)
    assert Folder(str(tmp_path / "photos"), cache=str(tmp_path / "cache")).num_classes == 0
    assert "directly contains images, such as cover.png: its subfolders are not used as classes" in caplog.text
