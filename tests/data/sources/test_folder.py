"""Classes from a CSV file, and how often classes are shown."""

import os
import subprocess
import sys

import pytest
import torch
from PIL import Image

from lit_gans.common.errors import RefusedInput
from lit_gans.data.sources.folder import Folder
from tests.data.conftest import steps

COLORS = {"a.png": 10, "b.png": 20, "in/c.png": 30, "in/d.png": 40}
HEADER = "file,class\n"
GOOD = HEADER + "a.png,10\nin/c.png,9\nb.png,10\nin/d.png,2\n"


@pytest.fixture
def labeled(tmp_path):
    """A datamodule of four gray pictures in a folder and a subfolder, with the classes of a CSV text."""
    (tmp_path / "photos" / "in").mkdir(parents=True)
    for name, value in COLORS.items():
        Image.new("L", (8, 8), value).save(tmp_path / "photos" / name)

    def data(text=GOOD, **settings):
        (tmp_path / "labels.csv").write_text(text)
        sizes = {"image_size": 8, "channels": 1, "batch_size": 2, "cache": str(tmp_path / "cache")}
        return Folder(str(tmp_path / "photos"), labels=str(tmp_path / "labels.csv"), **(sizes | settings))

    return data


def shown(data):
    """The class of each gray value."""
    return dict(zip(data.packed.images[:, 0, 0, 0].tolist(), data.packed.labels.tolist(), strict=True))


def test_numbers_are_sorted_as_numbers_and_other_names_by_name(labeled):
    data = labeled()
    assert (data.classes, data.num_classes) == (["2", "9", "10"], 3)
    assert shown(data) == {10: 2, 20: 2, 30: 1, 40: 0}
    words = labeled("\ufeff" + GOOD.replace(",10", ",wasp").replace(",9", ",ant").replace("class", "class,note"))
    assert words.classes == ["2", "ant", "wasp"]
    assert shown(words) == {10: 2, 20: 2, 30: 1, 40: 0}


@pytest.mark.parametrize(
    ("classes", "order"),
    [
        (("10.0", "0.0", "1.0", "0.5"), ["0.0", "0.5", "1.0", "10.0"]),
        (("10", "-1", "2", "0"), ["-1", "0", "2", "10"]),
        (("2", "02", "01", "1"), ["01", "1", "02", "2"]),  # equal numbers by name; the order of a set is random
        (("1.0", "1", "1.00", "+1"), ["+1", "1", "1.0", "1.00"]),
        (("9" * 5000, "8" * 5000, "1", "2"), ["1", "2", "8" * 5000, "9" * 5000]),
        (("nan", "10", "9", "inf"), ["10", "9", "inf", "nan"]),
        (("1_0", "2_0", "1_10", "1_9"), ["1_0", "1_10", "1_9", "2_0"]),
    ],
)
def test_every_finite_number_is_sorted_as_a_number(labeled, classes, order):
    rows = "".join(f"{file},{name}\n" for file, name in zip(COLORS, classes, strict=True))
    assert labeled(HEADER + rows).classes == order


def test_other_classes_are_packed_again(labeled):
    assert shown(labeled()) != shown(labeled(GOOD.replace("a.png,10", "a.png,2")))


def test_a_table_that_is_no_text_is_named(labeled, tmp_path):
    labeled()
    with pytest.raises(RefusedInput, match=r"data.labels=.*a.png cannot be read: 'utf-8'"):
        Folder(str(tmp_path / "photos"), labels=str(tmp_path / "photos/a.png"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name,class\na.png,1\n", "its columns are name, class, expected file and class in the first line"),
        (GOOD + "b.png,2\na.png,10\n", "2 of its 6 rows name a file again, such as a.png: each image needs"),
        (
            GOOD + "gone.png,2\n/far/away.png,2\n",
            "2 of its 6 rows name no image in .*photos, such as gone.png; data.on_",
        ),
        (
            GOOD.replace("in/c.png,9\n", ""),
            "1 of the 4 images in .* have no class in the file, such as in/c.png; data",
        ),
        (
            GOOD.replace("in/c.png,9", "in/c.png, "),
            "1 of the 4 images in .*photos have no class in the file, such as in/c.png",
        ),
        (
            GOOD.replace("b.png,10", "b.png,wasp, large"),
            r"line 4 has more cells than the first line, such as 'large': put names that contain a ',' in quotes",
        ),
        (
            "sep=;\n" + GOOD.replace("b.png,10", "b.png,wasp, large").replace(",", ";"),
            r"line 5 has more cells than the first line, such as 'large': put names that contain a ';' in quotes",
        ),
    ],
)
def test_a_csv_file_that_is_not_that_of_the_images(labeled, text, sentence):
    with pytest.raises(RefusedInput, match=rf"data.labels=.*labels.csv: {sentence}"):
        labeled(text)


def test_skip_leaves_out_what_does_not_fit(labeled, caplog):
    data = labeled(GOOD.replace("in/c.png,9\n", "") + "gone.png,7\n", on_error="skip")
    assert shown(data) == {10: 1, 20: 1, 40: 0}, "gone.png makes no class"
    assert "1 of its 4 rows name no image in" in caplog.text
    assert "1 of the 4 images in" in caplog.text
    with pytest.raises(RefusedInput, match="none of its 0 images can be read"):
        labeled(HEADER, on_error="skip").setup()


def labels_of(data):
    """The classes that are shown in 200 epochs."""
    return torch.cat([step["label"] for step in steps(data, range(200))])


@pytest.mark.parametrize(
    ("weights", "shares"),
    [
        (None, (0.25, 0.25, 0.5)),
        ("balanced", (1 / 3, 1 / 3, 1 / 3)),
        ({"2": 3, "9": 1, "10": 0}, (0.75, 0.25, 0.0)),
    ],
)
def test_classes_are_shown_as_often_as_their_weights_say(labeled, weights, shares):
    labels = labels_of(labeled(class_weights=weights))
    found = labels.bincount(minlength=3) / len(labels)
    assert len(labels) == 800, "as many images an epoch as there are"
    torch.testing.assert_close(found, torch.tensor(shares), rtol=0, atol=0.05)  # three standard deviations


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        (
            {"2": 1.0, "9": 1.0},
            "each of the 3 classes \\(a weight of 0 leaves a class out\\); missing or unknown: 10",
        ),
        ({"2": 1.0, "9": 1.0, "11": 1.0}, "missing or unknown: 10, 11"),
        ({"2": 1.0, "9": -1.0, "10": 1.0}, "data.class_weights.9=-1.0 must be at least 0"),
    ],
)
def test_weights_that_are_not_those_of_the_classes(labeled, weights, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        labeled(class_weights=weights)


def test_weights_need_classes_and_images(labeled, tmp_path):
    flat = tmp_path / "flat"
    flat.mkdir()
    Image.new("L", (8, 8)).save(flat / "a.png")
    with pytest.raises(RefusedInput, match=r"data.class_weights: the images have no classes"):
        Folder(str(flat), class_weights="balanced")
    (tmp_path / "photos" / "in" / "c.png").write_text("no picture")
    weights = {"2": 1.0, "9": 1.0, "10": 1.0}
    with pytest.raises(RefusedInput, match="there are no images of 9: set the weight to 0"):
        labeled(class_weights=weights, on_error="skip").setup()
    assert labels_of(labeled(class_weights="balanced", on_error="skip")).unique().tolist() == [0, 2]


UNDER_ASCII = """
import sys
from lit_gans.data.sources.folder import Folder
data = Folder(sys.argv[1], class_weights={"caf\\u00e9": 2.0, "tea": 1.0})
print(ascii(data.class_names), data.weights_of_classes())
"""


@pytest.mark.runs
def test_classes_have_the_names_of_their_folders_under_an_ascii_locale(tmp_path):
    for name in ("caf\u00e9", "tea"):
        (tmp_path / name).mkdir()
        Image.new("L", (8, 8)).save(tmp_path / name / "a.png")
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", UNDER_ASCII, str(tmp_path)]
    done = subprocess.run(command, env=os.environ | ascii_only, capture_output=True, text=True)
    assert done.stdout == "['caf\\xe9', 'tea'] [2.0, 1.0]\n", done.stderr
