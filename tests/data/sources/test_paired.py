import re

import numpy as np
import pytest
import torch
from PIL import Image

from lit_gans.common.errors import RefusedInput
from lit_gans.data.sources.digits import Digits
from lit_gans.data.sources.paired import DigitEdges, PairedFolder
from tests.data.conftest import steps


@pytest.fixture(scope="module")
def edges():
    return DigitEdges()


def test_every_tenth_digit_is_held_out_of_training(edges):
    digits = Digits().dataset.images
    train, held_out = edges.dataset.images, edges.held_out["image"]
    assert (len(train), len(held_out)) == (4500, 500)
    assert torch.equal(held_out, digits[9::10])
    assert torch.equal(
        torch.cat([train.view(500, 9, -1), held_out.view(500, 1, -1)], 1).flatten(0, 1), digits.flatten(1)
    )


@pytest.mark.parametrize("held_out", [False, True])
def test_an_outline_is_what_touches_its_digit_and_is_not_of_it(edges, held_out):
    dataset = edges.dataset
    pairs = edges.held_out if held_out else {"image": dataset.images, "input": dataset.others["input"]}
    filled = np.pad(pairs["image"][:50, 0].numpy() > 127, ((0, 0), (1, 1), (1, 1)))
    near = np.any([np.roll(filled, (down, right), (1, 2)) for down in (-1, 0, 1) for right in (-1, 0, 1)], 0)
    expected = (near & ~filled)[:, 1:-1, 1:-1]
    assert pairs["input"].dtype == torch.uint8
    assert np.array_equal(pairs["input"][:50, 0].numpy(), 255 * expected)
    assert expected.sum((1, 2)).min() > 10, "no outline is empty"


def test_a_step_keeps_pairs_together_at_any_size_and_number_of_channels():
    data = DigitEdges(image_size=16, channels=3)
    assert data.input_channels == 3
    step = data.dataset[torch.tensor([7, 3])]
    pairs = data.pairs(held_out=False)
    assert all(torch.equal(step[name], pairs[name][[7, 3]]) for name in ("image", "input"))
    assert step["input"].shape == (2, 3, 16, 16)
    opaque, gray = (DigitEdges(image_size=16, channels=channels).pairs(held_out=True)["image"] for channels in (4, 1))
    assert torch.equal(opaque, torch.cat([gray, gray, gray, torch.full_like(gray, 255)], 1))


RED, BLUE, GREEN, WHITE = (255, 0, 0), (0, 0, 255), (0, 255, 0), (255, 255, 255)


def pairs(data):
    return data.halves(data.packed.images)


def write_pair(path, left, right, width=512, height=256):
    """Writes a picture of two colors side by side."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = Image.new("RGB", (width, height), left)
    whole.paste(right, (width // 2, 0, width, height))
    whole.save(path)


def colors(images):
    """The color of each image, which has one only."""
    assert (images.flatten(2).float().std(2) < 2).all()
    return [tuple(color) for color in images.float().mean((2, 3)).round().int().tolist()]


def test_pairs_from_two_trees_are_those_of_the_same_name(tmp_path, caplog):
    for tree, part, name, color in (
        ("A", "train", "1.png", RED),
        ("A", "train", "2.png", GREEN),
        ("B", "train", "1.bmp", BLUE),
        ("B", "train", "2.png", WHITE),
        ("A", "val", "3.png", WHITE),
        ("B", "val", "3.png", RED),
    ):
        write_pair(tmp_path / tree / part / name, color, color, 16, 16)
    data = PairedFolder(str(tmp_path), image_size=16)
    assert colors(pairs(data)["input"]) == [RED, GREEN]
    assert colors(pairs(data)["image"]) == [BLUE, WHITE]
    assert (colors(data.held_out["input"]), colors(data.held_out["image"])) == ([WHITE], [RED])
    reverse = PairedFolder(str(tmp_path), image_size=16, direction="b_to_a")
    assert colors(pairs(reverse)["image"]) == [RED, GREEN]
    (tmp_path / "B" / "train" / "2.png").unlink()
    alone = rf"1 images in A/ and B/ have no partner with the same name, such as {tmp_path / 'A' / 'train' / '2.png'}"
    with pytest.raises(RefusedInput, match=re.escape(alone)):
        PairedFolder(str(tmp_path), image_size=16)
    assert colors(pairs(PairedFolder(str(tmp_path), image_size=16, on_error="skip"))["image"]) == [BLUE]
    assert caplog.text.count(f"{alone}; these are left out") == 1


def test_the_held_out_pairs_are_in_val_or_test_and_a_flat_folder_serves_both(tmp_path):
    write_pair(tmp_path / "flat" / "1.png", RED, BLUE, 32, 16)
    flat = PairedFolder(str(tmp_path / "flat"), image_size=16)
    assert torch.equal(flat.held_out["image"], pairs(flat)["image"])
    write_pair(tmp_path / "two" / "train" / "1.png", RED, BLUE, 32, 16)
    write_pair(tmp_path / "two" / "test" / "1.png", GREEN, WHITE, 32, 16)
    assert colors(PairedFolder(str(tmp_path / "two"), image_size=16).held_out["image"]) == [WHITE]


@pytest.mark.parametrize("direction", ["a_to_b", "b_to_a"])
@pytest.mark.parametrize("placement", ["memory", "disk"])
def test_a_batch_has_inputs_and_targets_from_any_storage_and_mirrors_both(tmp_path, placement, direction):
    for number in range(8):
        left = Image.fromarray(np.full((8, 8, 3), 30 * number, np.uint8))
        left.paste((255, 0, 0), (0, 0, 2, 8))  # at the left edge
        whole = Image.new("RGB", (16, 8))
        whole.paste(left, (0, 0))
        whole.paste(left.point(lambda value: value // 2), (8, 0))
        whole.save(tmp_path / f"{number}.png")
    data = PairedFolder(str(tmp_path), direction, 8, batch_size=4, flip=True, placement=placement)
    served = list(steps(data))
    assert all(step.keys() == {"image", "label", "input"} for step in served)
    first, second = (torch.cat([step[name] for step in served]) for name in ("input", "image"))
    first, second = (first, second) if direction == "a_to_b" else (second, first)
    assert torch.equal(first // 2, second)
    assert sorted(first[:, 1, 0, 4].tolist()) == [30 * number for number in range(8)]
    mirrored = (first[:, 0, 0, -1] == 255) & (first[:, 1, 0, -1] == 0)
    assert 0 < mirrored.sum() < 8
    images, real = torch.cat([step["image"] for step in served]), torch.cat(list(data.real_batches(3)))
    assert sorted(images[:, 1, 0, 4].tolist()) == real[:, 1, 0, 4].tolist()


def test_bad_pairs_are_left_out_and_listed_where_asked(tmp_path, caplog):
    write_pair(tmp_path / "1.png", RED, BLUE)
    write_pair(tmp_path / "odd.png", RED, BLUE, 33, 16)
    (tmp_path / "0.png").write_bytes(b"")
    data = PairedFolder(str(tmp_path), image_size=16, on_error="skip")
    assert colors(pairs(data)["input"]) == [RED]
    assert "2 left out" in caplog.text
    assert "33 pixels wide" in caplog.text


def test_two_trees_without_a_pair_are_refused(tmp_path):
    write_pair(tmp_path / "A/a.png", RED, RED)
    write_pair(tmp_path / "B/b.png", BLUE, BLUE)
    with pytest.raises(RefusedInput, match="no image in A/ has a partner in B/: the files of a pair have"):
        PairedFolder(str(tmp_path), on_error="skip")
