"""What `lit-gans sample` makes of each kind of model: images of a class, translations, points."""

import csv
import re

import numpy as np
import pytest
import torch
from PIL import Image

from lit_gans.cli.commands.interpolate import interpolate
from lit_gans.cli.commands.sample import sample
from lit_gans.common.errors import RefusedInput
from lit_gans.config.load import load
from lit_gans.data.images import Frame, images_at, read_at
from lit_gans.data.sources.folder import Folder
from lit_gans.data.sources.points import Ring
from lit_gans.latents.truncation import truncated


def assert_shows(path, image):
    """A picture shows an image of one channel, but for its 8 bits."""
    with Image.open(path) as picture:
        found = torch.from_numpy(np.asarray(picture.convert("L")).copy()).float() / 255
    assert (found - image[0]).abs().max() <= 0.51 / 255 + 1e-6


def read(folder):
    """The images in a folder as a model of 16 pixels takes them."""
    return torch.cat([read_at(path, Frame(16, 1, "none")) for path in images_at(folder)])


# ---- classes


@pytest.mark.parametrize("network", ["dcgan", "resnet", "mlp"])
def test_images_of_a_class_are_those_of_its_label(tiny_gan, network):
    module = tiny_gan("dcgan", num_classes=10, network=network)
    with torch.no_grad():  # at first the classes are all alike where batch norm is conditioned on them
        for parameter in module.generator.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    latents = module.latents(6, seed=2)
    threes = module.decode(latents, labels=torch.full((6,), 3))
    assert torch.equal(module.sample(6, seed=2, label=3), threes)
    assert not torch.equal(module.sample(6, seed=2, label=4), threes)
    each = torch.cat([module.sample(6, seed=2, label=label)[label : label + 1] for label in range(6)])
    torch.testing.assert_close(module.sample(6, seed=2), each, rtol=1e-5, atol=1e-6)


def test_a_class_that_the_model_does_not_know_is_refused(tiny_gan):
    with pytest.raises(RefusedInput, match="label=-1: the model has the classes 0 to 9"):
        tiny_gan(num_classes=10).sample(2, label=-1)


@pytest.fixture
def animals(saved, tmp_path):
    """Checkpoint of a run on images of three classes, whose folders are their names."""
    for name, gray in (("cat", 0), ("dog", 100), ("emu", 200)):
        for number in range(4):
            path = tmp_path / "data" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (16, 16), gray).save(path)
    data = Folder(root=str(tmp_path / "data"), image_size=16, channels=1, batch_size=4, cache=str(tmp_path / "cache"))
    return saved(data=data, num_classes=3)


def test_classes_have_the_names_of_their_folders(animals, command, ran, refused, tmp_path):
    module = load(animals)
    assert module.class_names == ("cat", "dog", "emu")
    assert torch.equal(module.sample(2, label="dog"), module.sample(2, label=1))
    said = command("sample", f"checkpoint={animals}", "label=emu", "num=2", f"output={tmp_path / 'emus'}")
    assert "generating 2 images of emu" in "".join(map(str, said))
    assert_shows(tmp_path / "emus/00001.png", module.sample(2, label=2)[1])
    said = command("sample", f"checkpoint={animals}", "num=6")
    assert "columns of the grid: cat, dog, emu" in "".join(map(str, said))
    for wrong in ("cow", "3"):
        message = refused("sample", f"checkpoint={animals}", f"label={wrong}")
        assert f"label={wrong}: the model has the classes 0 to 2 (cat, dog, emu)." in message
    ran("export", f"checkpoint={animals}", f"output={tmp_path / 'exported'}")
    assert load(tmp_path / "exported").class_names == ("cat", "dog", "emu")
    assert "Classes: cat, dog, emu." in (tmp_path / "exported/README.md").read_text()


@pytest.mark.parametrize(
    ("names", "label", "index"),
    [
        ((), 2, 2),
        (("cat", "dog", "emu"), 2, 2),
        (("2", "5", "7"), 7, 2),
        (("2", "5", "7"), "2", 0),
        (("0", "1", "2"), 2, 2),
        (("2", "5", "7"), 2, "label=2 is the index of one class (7), and the name of another: sample(label"),
        (("2", "5", "7"), 1, 1),
        (("2", "5", "7"), 3, "label=3: the model has the classes 0 to 2 (2, 5, 7)"),
    ],
)
def test_a_number_is_an_index_or_a_name(tiny_gan, names, label, index):
    module = tiny_gan(num_classes=3)
    module.class_names = names
    if isinstance(index, int):
        assert module.labels(2, label).tolist() == [index, index]
    else:
        with pytest.raises(RefusedInput, match=re.escape(index)):
            module.labels(2, label)


def test_without_a_label_the_grid_has_a_column_for_each_class(saved, tmp_path):
    path = saved(num_classes=10)
    with Image.open(sample(path, num=20, output=str(tmp_path / "all"))) as grid:
        assert grid.size == (10 * 18 + 2, 2 * 18 + 2)
    with Image.open(sample(path, num=16, label=2, output=str(tmp_path / "twos"))) as grid:
        assert grid.size == (4 * 18 + 2, 4 * 18 + 2)
    for index, image in enumerate(load(path).sample(16, label=2)):
        assert_shows(tmp_path / f"twos/{index:05d}.png", image)


# ---- translations


@pytest.fixture
def pictures(tmp_path):
    """A folder of three gray pictures of different sizes and endings."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    drawn = np.random.default_rng(0)
    for name, size in (("street.png", (16, 16)), ("a house.jpg", (40, 30)), ("10.bmp", (8, 8))):
        Image.fromarray(drawn.integers(0, 256, size[::-1], dtype=np.uint8)).save(folder / name)
    (folder / "notes.txt").write_text("no picture")
    return folder


def test_every_image_is_translated_to_a_file_of_the_same_name(ran, saved, pictures, tmp_path):
    path = saved("pix2pix")
    out = ran("sample", f"checkpoint={path}", f"input={pictures}", "seed=4", "output=made")
    assert "3 images" in out
    assert {made.name for made in (tmp_path / "made").iterdir()} == {"street.png", "a house.png", "10.png", "grid.png"}
    images = load(path).translate(read(pictures), seed=4)
    for picture, image in zip(images_at(pictures), images, strict=True):
        assert_shows(tmp_path / "made" / f"{picture.stem}.png", image)
    assert "2 images" in ran("sample", f"checkpoint={path}", f"input={pictures}", "num=2", "output=two")
    assert {made.stem for made in (tmp_path / "two").iterdir()} == {
        *(each.stem for each in images_at(pictures)[:2]),
        "grid",
    }
    for name in ("10.png", "grid.png"):
        Image.new("L", (16, 16), 90).save(pictures / name)
    ran("sample", f"checkpoint={path}", f"input={pictures}", "output=more")
    names = {"street.png", "a house.png", "10.png", "10_.png", "grid.png", "grid_.png"}
    assert {made.name for made in (tmp_path / "more").iterdir()} == names, "no one replaces another, nor the grid"


def test_translations_never_replace_the_input_images(saved, pictures, refused):
    before = (pictures / "street.png").read_bytes()
    said = refused("sample", f"checkpoint={saved('pix2pix')}", f"input={pictures}", f"output={pictures}/../pictures")
    assert "is the folder of the input images, which might be replaced: use another." in said
    assert (pictures / "street.png").read_bytes() == before


def test_cyclegan_translates_there_and_back(saved, pictures, tmp_path):
    path = saved("cyclegan")
    for direction in ("a_to_b", "b_to_a"):
        sample(path, input=str(pictures), direction=direction, output=str(tmp_path / direction))
        images = load(path).translate(read(pictures), direction=direction)
        for picture, image in zip(images_at(pictures), images, strict=True):
            assert_shows(tmp_path / direction / f"{picture.stem}.png", image)
    assert not torch.equal(images, load(path).translate(read(pictures)))
    for name, where in (("pix2pix", {"input": str(pictures)}), ("dcgan", {})):
        with pytest.raises(
            RefusedInput, match=r"direction=b_to_a: a \w+ does not translate back; leave out direction="
        ):
            sample(saved(name), direction="b_to_a", **where)


def test_only_translations_need_input_images(saved, pictures):
    path = saved("pix2pix")
    with pytest.raises(RefusedInput, match="pix2pix translates images: add input=FOLDER"):
        sample(path)
    with pytest.raises(RefusedInput, match=r"truncation=1\.0: pix2pix has no latents"):
        sample(path, input=str(pictures), truncation=1.0)
    with pytest.raises(RefusedInput, match=r"a DCGAN generates images from noise; leave out input="):
        sample(saved("dcgan"), input=str(pictures))


# ---- points


def test_points_become_a_table_and_a_plot(saved, tmp_path):
    path = saved("gan", Ring(num_points=64, batch_size=16), image_size=1, channels=2)
    with pytest.raises(RefusedInput, match="expected a GAN that maps latents to images, not a"):
        interpolate(path)
    plot = sample(path, num=50, seed=3)
    folder = tmp_path / "run" / "generated"
    assert plot == folder / "points.png"
    assert {made.name for made in folder.iterdir()} == {"points.csv", "points.png"}
    with (folder / "points.csv").open() as file:
        rows = [(float(row["x"]), float(row["y"])) for row in csv.DictReader(file)]
    torch.testing.assert_close(torch.tensor(rows), load(path).sample(50, seed=3).flatten(1), rtol=1e-5, atol=1e-6)


def test_truncation_moves_latents_towards_the_origin(saved, tmp_path):
    path = saved()
    module = load(path)
    for bound in (None, 0.5):
        sample(path, num=2, seed=4, truncation=bound, output=str(tmp_path / str(bound)))
        assert_shows(tmp_path / f"{bound}/00001.png", module.decode(truncated(module.latents(2, 4), bound))[1])
    plain, bounded = (tmp_path / f"{bound}/00001.png" for bound in (None, 0.5))
    assert plain.read_bytes() != bounded.read_bytes()
    with pytest.raises(RefusedInput, match=r"truncation=0\.5: the images of this ProjectedGAN depend only"):
        sample(saved("projected_gan"), truncation=0.5)


# ---- channels, depth and sizes that a PNG does not hold


def test_other_channels_are_arrays_and_shown_in_gray(saved, random_images, tmp_path, capsys):
    class Bands(type(random_images())):
        possible_channels = None

    path = saved(data=Bands(image_size=16, channels=5, batch_size=8), channels=5)
    sample(path, num=2, output=str(tmp_path / "made"))
    said = capsys.readouterr().out
    assert "NPY files (height, width, 5) with values from 0 to 1" in said
    found = np.load(tmp_path / "made" / "00001.npy")
    expected = load(path).sample(2)[1].permute(1, 2, 0).numpy()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-6)
    with Image.open(tmp_path / "made" / "grid.png") as grid:
        assert grid.size == (2 * (5 * 16 + 2) + 2, 16 + 4), "two images of five channels"


@pytest.fixture
def floats(ran, tmp_path):
    """A run of pix2pix on crops of float pairs with other channels in and out, in a folder of values from 2 to 6."""
    for side, channels in {"A": 2, "B": 1}.items():
        (tmp_path / "pairs" / side).mkdir(parents=True)
        for index in range(4):
            values = 2 + 4 * np.random.default_rng(index).random((24, 33, channels), dtype=np.float32)
            np.save(tmp_path / "pairs" / side / f"{index}.npy", values)
    sizes = ["data.image_size=16", "data.whole_size=[24,32]", "data.channels=1", "data.input_channels=2"]
    small = ["model.generator_width=4", "model.discriminator_width=4", "model.patch_depth=2", "model.input_channels=2"]
    depth = ["data.dtype=float32", "data.value_range=[2,6]", "data.cache=cache", "data.batch_size=2", "metrics=none"]
    settings = ["model=pix2pix", "data=paired_folder", "data.root=pairs", "trainer.max_steps=1", "logger=none"]
    ran("train", *settings, *sizes, *small, *depth, "hydra.run.dir=run", "trainer.accelerator=cpu")
    return "run/checkpoints/last.ckpt"


def test_full_size_images_of_floats_keep_their_size_and_range(floats, ran, refused, tmp_path):
    out = ran("sample", f"checkpoint={floats}", "input=pairs/A", "output=made")
    assert "NPY files (height, width, 1) with values from 2 to 6" in out
    found = np.load(tmp_path / "made" / "3.npy")
    assert found.shape == (24, 33, 1), "its own size, which the network cannot halve"
    values = torch.from_numpy(np.load(tmp_path / "pairs" / "A" / "3.npy")).permute(2, 0, 1)[None]
    expected = 2 + 4 * load(floats).translate((values - 2) / 4)[0].permute(1, 2, 0).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-4)
    ran("sample", f"checkpoint={floats}", "input=pairs/A", "output=made", "whole=false")
    assert np.load(tmp_path / "made" / "3.npy").shape == (16, 16, 1)
    Image.new("RGB", (8, 8)).save(tmp_path / "pairs" / "A" / "4.png")
    assert "4.png has the shape (8, 8, 3), expected 2 channels" in refused(
        "sample", f"checkpoint={floats}", "input=pairs/A", "output=made"
    )
