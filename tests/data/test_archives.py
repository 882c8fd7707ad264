"""Zip archives, tar archives and WebDataset's shards give what the folder gives from which they were packed."""

import gc
import io
import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

from lit_gans.common.errors import RefusedInput
from lit_gans.data import archives
from lit_gans.data.archives import files_in, open_file
from lit_gans.data.files import find_images, images_in
from lit_gans.data.images import images_at
from lit_gans.data.sources.folder import Folder
from lit_gans.metrics.folder import PictureFolder
from lit_gans.strategies.ddp import NetworkDDP
from tests.data.conftest import steps
from tests.strategies import ranks
from tests.tiny import fit, tiny_gan

NUM = 20
NAMES = [f"{index // 8:05d}/img{index:08d}.png" for index in range(NUM)]
LABELS = [index * 3 % 5 + 7 for index in range(NUM)]  # classes that are neither the folders nor in their order
TABLE = {"labels": [[name, label] for name, label in zip(NAMES, LABELS, strict=True)]}
SETTINGS = {"image_size": 8, "channels": 1, "batch_size": 4}


def encoded(index):
    file = io.BytesIO()
    pixels = np.random.default_rng(index).integers(0, 256, (8, 8), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def content(table=TABLE):
    """The files of a data set of StyleGAN, and what operating systems add."""
    files = {name: encoded(index) for index, name in enumerate(NAMES)}
    junk = {"__MACOSX/00000/img00000000.png": b"", ".DS_Store": b"", "00000/._img00000000.png": b""}
    return files | junk | ({} if table is None else {"dataset.json": json.dumps(table).encode()})


def write_folder(path, files):
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)


def write_zip(path, files, compression=zipfile.ZIP_STORED, top=""):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(top + name, data)


def write_tar(path, files, top="./"):
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(top + name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def write_shards(folder, images=range(NUM), labels=range(NUM), ending="cls", label=lambda index: LABELS[index]):
    """Writes shards with the package `webdataset`: images that have labels beside them, or lack them."""
    webdataset = pytest.importorskip("webdataset")
    folder.mkdir(exist_ok=True)
    with webdataset.ShardWriter(f"{folder}/train-%03d.tar", maxcount=8, verbose=0) as writer:
        for index in range(NUM):
            image = {"png": encoded(index)} if index in images else {}
            labeled = {ending: label(index)} if index in labels else {}
            writer.write({"__key__": f"img{index:08d}", **image, **labeled})


def labeled(index):
    return {"label": LABELS[index], "caption": "noise"}


# how the data set is stored, by the name of the file or folder
FORMS = {
    "data.zip": partial(write_zip, files=content()),
    "deflated.zip": partial(write_zip, files=content(), compression=zipfile.ZIP_DEFLATED),
    "inside.zip": partial(write_zip, files=content(), top="photos/"),
    "data.tar": partial(write_tar, files=content()),
    "no_ending": partial(write_zip, files=content()),
    "shards": write_shards,
    "shards_json": partial(write_shards, ending="json", label=labeled),
    "shards_text": partial(write_shards, label=lambda index: f"{LABELS[index]}\n"),
}


@pytest.fixture
def data(tmp_path):
    def make(name, cache="cache", **settings):
        return Folder(str(tmp_path / name), cache=str(tmp_path / cache), **(SETTINGS | settings))

    return make


def assert_equal(ours, theirs):
    assert len(ours) == len(theirs) > 0
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.keys() == other.keys()
        for key in mine:
            assert torch.equal(mine[key], other[key])


@pytest.mark.runs
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("placement", ["memory", "disk"])
def test_images_labels_and_order_are_those_of_the_folder(tmp_path, data, form, placement):
    write_folder(tmp_path / "folder", content())
    FORMS[form](tmp_path / form)
    folder, other = (data(name, name + "_cache", placement=placement) for name in ("folder", form))
    assert folder.class_names == other.class_names == ["7", "8", "9", "10", "11"]
    assert folder.packed.labels.tolist() == [label - 7 for label in LABELS]
    assert torch.equal(folder.packed.labels, other.packed.labels)
    assert torch.equal(folder.packed.images, other.packed.images)
    expected = [encoded(index) for index in range(NUM)]
    assert torch.equal(other.packed.images[:, 0], torch.stack([pixels(each) for each in expected]))
    assert_equal([*steps(other, range(2))], [*steps(folder, range(2))])
    assert folder.digests() == other.digests(), "a run continues on either"


def pixels(file):
    return torch.from_numpy(np.array(Image.open(io.BytesIO(file))))


@pytest.mark.parametrize("form", FORMS)
def test_an_evaluated_archive_is_that_of_the_folder(tmp_path, form):
    write_folder(tmp_path / "folder", content())
    FORMS[form](tmp_path / form)
    folder, other = (PictureFolder(tmp_path / name) for name in ("folder", form))
    assert len(folder) == len(other) == NUM
    images = [torch.cat([*pictures.real_batches(6)]) for pictures in (folder, other)]
    assert torch.equal(*images)
    assert torch.equal(torch.cat([*other.real_batches(4, start=3, stop=11)]), images[0][3:11]), "a rank's share"


def test_an_unpacked_shard_has_the_same_classes(tmp_path, data):
    write_shards(tmp_path / "shards")
    (tmp_path / "unpacked").mkdir()
    for shard in (tmp_path / "shards").iterdir():
        with tarfile.open(shard) as archive:
            archive.extractall(tmp_path / "unpacked", filter="data")
    shards, unpacked = (data(name) for name in ("shards", "unpacked"))
    assert shards.packed_path == unpacked.packed_path
    assert shards.class_names == unpacked.class_names == ["7", "8", "9", "10", "11"]


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_shards_are_read_as_webdataset_reads_them(tmp_path, data):
    webdataset = pytest.importorskip("webdataset")
    write_shards(tmp_path / "shards")
    urls = sorted(map(str, (tmp_path / "shards").iterdir()))
    theirs = [*webdataset.WebDataset(urls, shardshuffle=False).decode("l8").to_tuple("png", "cls")]
    gc.collect()  # webdataset leaves its shards open
    ours = data("shards")
    assert torch.equal(ours.packed.images[:, 0], torch.tensor(np.stack([image for image, _ in theirs])))
    assert [int(ours.class_names[label]) for label in ours.packed.labels] == [label for _, label in theirs]


@pytest.mark.parametrize("pack", [write_folder, write_zip, write_tar])
def test_subfolders_are_classes_without_labels(tmp_path, data, pack):
    pack(tmp_path / "data", content(None))
    assert data("data").class_names == ["00000", "00001", "00002"]


@pytest.mark.parametrize("pack", [write_folder, write_zip, write_tar])
def test_labels_that_are_null_are_no_classes(tmp_path, data, pack):
    pack(tmp_path / "data", content({"labels": None}))
    assert data("data").class_names == []
    assert data("data").packed.labels.tolist() == [0] * NUM


def test_shards_are_no_classes_but_their_folders_are(tmp_path, data):
    write_shards(tmp_path / "plain", labels=())
    assert data("plain").class_names == []
    (tmp_path / "shards").mkdir()
    write_tar(tmp_path / "shards/a.tar", {"cat/1.png": encoded(1), "dog/2.png": encoded(2)})
    write_tar(tmp_path / "shards/b.tar", {"cat/3.png": encoded(3)})
    shards = data("shards", batch_size=1)
    assert shards.class_names == ["cat", "dog"]
    assert shards.packed.labels.tolist() == [0, 1, 0]


def test_descriptions_beside_images_are_no_classes(tmp_path, data):
    write_shards(tmp_path / "shards", ending="json", label=lambda index: {"caption": "noise", "width": 8})
    assert data("shards").class_names == []


def test_a_dataset_json_of_another_program_is_not_used(tmp_path, data, caplog):
    write_folder(tmp_path / "folder", content({"rows": [1]}))
    assert data("folder").class_names == ["00000", "00001", "00002"]
    assert "dataset.json has no labels in StyleGAN's format, and is not used" in caplog.text


def test_labels_of_another_file_are_used_instead(tmp_path, data):
    write_zip(tmp_path / "data.zip", content({"labels": [[name, [0.5]] for name in NAMES]}))
    (tmp_path / "none.json").write_text('{"labels": null}')
    assert data("data.zip", labels=str(tmp_path / "none.json")).class_names == []
    rows = "".join(f"{name},{label}\n" for name, label in TABLE["labels"])
    (tmp_path / "labels.csv").write_text("file,class\n" + rows)
    assert data("data.zip", labels=str(tmp_path / "labels.csv")).class_names == ["7", "8", "9", "10", "11"]


def test_a_folder_inside_of_an_archive(tmp_path, data):
    write_zip(tmp_path / "data.zip", {"train/cat/1.png": encoded(1), "train/dog/2.png": encoded(2), "val/3.png": b""})
    assert data("data.zip/train", batch_size=1).class_names == ["cat", "dog"]
    with pytest.raises(RefusedInput, match=r"data.zip/test contains no images"):
        data("data.zip/test")


def test_other_contents_are_packed_again(tmp_path, data):
    write_zip(tmp_path / "data.zip", content())
    before, status = data("data.zip").packed_path, os.stat(tmp_path / "data.zip")
    files = content() | {NAMES[0]: encoded(99)}
    write_zip(tmp_path / "data.zip", files)
    os.utime(tmp_path / "data.zip", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert data("data.zip").packed_path != before
    assert torch.equal(data("data.zip").packed.images[0, 0], pixels(encoded(99)))


LINKS = {  # target of each symbolic link
    "in/b.png": "a.png",
    "in/b2.png": "b.png",  # a link to a link
    "b3.png": "in/b2.png",
    "folder": "in",
    "folder2": "folder",
    "in/up": "..",  # would be an endless loop
    "other/in": "../in",
    "other/broken.png": "../no.png",
}


def test_links_in_a_tar_give_the_images_of_the_unpacked_folder(tmp_path):
    folder, path = tmp_path / "folder", tmp_path / "a.tar"
    write_folder(folder, {"in/a.png": encoded(1), "other/c.png": encoded(2)})
    for name, target in LINKS.items():
        (folder / name).symlink_to(target)
    os.link(folder / "in/a.png", folder / "hard.png")
    with tarfile.open(path, "w") as archive:
        archive.add(folder, ".")
    found = {root: find_images(root, nested=True).images for root in (folder, path)}
    names = [[image.relative_to(root).as_posix() for image in images] for root, images in found.items()]
    assert names[0] == names[1]
    assert {"b3.png", "folder2/b2.png", "other/in/a.png", "other/broken.png"} <= {*names[0]}
    for ours, theirs in zip(found[path], found[folder], strict=True):
        if ours.name == "broken.png":
            with pytest.raises(FileNotFoundError, match=r"a.tar contains no other/broken.png"):
                open_file(ours)
        else:
            assert open_file(ours).read() == theirs.read_bytes()


def test_links_in_a_tar_to_each_other_are_broken(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, target in (("a.png", "b.png"), ("b.png", "a.png"), ("c.png", "c.png")):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
    for path in find_images(tmp_path / "a.tar").images:
        with pytest.raises(FileNotFoundError):
            open_file(path)


@pytest.mark.skipif(shutil.which("tar") is None, reason="no tar")
@pytest.mark.parametrize("form", ["gnu", "posix"])
def test_holes_of_files_in_a_tar(tmp_path, form):
    content = {"a.npy": b"head" + bytes(2**16) + b"middle" + bytes(2**16), "b.npy": b"whole", "c.npy": bytes(2**16)}
    for name, data in content.items():
        with (tmp_path / name).open("wb") as file:
            for block in range(0, len(data), 4096):
                file.seek(block)
                if any(data[block : block + 4096]):
                    file.write(data[block : block + 4096])
            file.truncate(len(data))
    subprocess.run(["tar", "-cS", f"--format={form}", "-f", "a.tar", *content], cwd=tmp_path, check=True)
    assert (tmp_path / "a.tar").stat().st_size < 2**16, "the holes are not stored"
    assert {path.name: open_file(path).read() for path in find_images(tmp_path / "a.tar").images} == content


def test_a_flat_archive_is_input_of_other_commands_and_a_picture_is_itself(tmp_path):
    write_zip(tmp_path / "flat.zip", {"b.png": encoded(1), "a.png": encoded(0)})
    assert (
        images_at(tmp_path / "flat.zip")
        == images_in(tmp_path / "flat.zip")
        == [tmp_path / "flat.zip" / name for name in ("a.png", "b.png")]
    )
    (tmp_path / "c.png").write_bytes(encoded(2))
    assert images_at(tmp_path / "c.png") == [tmp_path / "c.png"]


def test_a_process_that_was_forked_opens_a_zip_anew(tmp_path):
    """Otherwise, both processes would move the position in one open file."""
    write_zip(tmp_path / "data.zip", content())
    opened = archives._opened(tmp_path / "data.zip")
    assert archives._opened(tmp_path / "data.zip") is opened
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        is_good = archives._opened(tmp_path / "data.zip") is not opened
        os.write(writer, bytes([is_good and open_file(tmp_path / "data.zip" / NAMES[3]).read() == encoded(3)]))
        os._exit(0)
    assert os.read(reader, 1) == b"\1"
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def other_names():
    return {"labels": [[name.replace("img", "image"), 0] for name in NAMES]}


WRONG_TABLES = {
    "names": (
        other_names(),
        "20 of its 20 rows name no image in .*, such as 00000/image00000000.png .an image there is",
    ),
    "numbers": ({"labels": [[name, 0.5] for name in NAMES]}, "the label is 0.5, expected a whole number or a name"),
    "half": ({"labels": TABLE["labels"][:12]}, "8 of the 20 images in .* have no class in the file, such as 00001/img"),
    "twice": ({"labels": TABLE["labels"] * 2}, "20 of its 40 rows name a file again"),
    "rows": ({"labels": NAMES}, r'expected {"labels": \[\["FILE", CLASS\], ...\]} or {"labels": null}'),
}


@pytest.mark.parametrize("pack", [write_folder, write_zip])
@pytest.mark.parametrize(("table", "sentence"), WRONG_TABLES.values(), ids=WRONG_TABLES)
def test_a_dataset_json_that_does_not_fit(tmp_path, data, pack, table, sentence):
    pack(tmp_path / "data", content(table))
    with pytest.raises(RefusedInput, match=rf"data/dataset.json: .*{sentence}") as caught:
        data("data")
    assert len(str(caught.value)) < 500, "no dump of its rows"


def test_a_dataset_json_that_is_no_json(tmp_path, data):
    write_folder(tmp_path / "folder", content() | {"dataset.json": b'{"labels": [['})
    expected = (
        r'is not JSON \(Expecting value: .*\): expected {"labels": \[\["FILE", CLASS\], ...\]} or {"labels": null}'
    )
    with pytest.raises(RefusedInput, match=rf"folder/dataset.json {expected}"):
        data("folder")
    (tmp_path / "rows.json").write_text('{"labels": ')
    with pytest.raises(RefusedInput, match=rf"data.labels=.*rows.json {expected}"):
        data("folder", labels=str(tmp_path / "rows.json"))


def test_a_json_file_that_is_given_as_labels_without_labels(tmp_path, data):
    write_folder(tmp_path / "folder", content())
    (tmp_path / "rows.json").write_text(json.dumps(dict.fromkeys(NAMES, 0)))
    with pytest.raises(RefusedInput, match=r'data.labels=.*rows.json: expected {"labels": ') as caught:
        data("folder", labels=str(tmp_path / "rows.json"))
    assert len(str(caught.value)) < 300
    (tmp_path / "rows.txt").write_text(",".join(NAMES))
    with pytest.raises(
        RefusedInput, match=r"columns are 00000/img0+.png, .*02.png and 17 more, expected file and class"
    ):
        data("folder", labels=str(tmp_path / "rows.txt"))


def test_pairs_that_are_incomplete(tmp_path, data):
    write_shards(tmp_path / "unlabeled", labels=range(7, NUM))
    said = r"7 of the 20 images in .*unlabeled have no .cls file with a class: train-000.tar/img00000000.png, "
    with pytest.raises(
        RefusedInput, match=said + r"train-000.tar/img0+1.png, train-000.tar/img0+2.png and 4 more; data"
    ):
        data("unlabeled")
    skipped = data("unlabeled", on_error="skip")
    assert len(skipped.packed.images) == 13
    assert [int(skipped.class_names[label]) for label in skipped.packed.labels] == LABELS[7:]
    write_shards(tmp_path / "alone", images=range(2, NUM), ending="json", label=labeled)
    with pytest.raises(
        RefusedInput, match=r"2 of the 20 .json files in .*alone have no image: train-000.tar/img0+.json"
    ):
        data("alone")
    assert len(data("alone", on_error="skip").packed.images) == 18


@pytest.mark.parametrize("write", ["folder", "shards"])
def test_labels_that_are_vectors_are_no_classes_unless_they_are_asked_for(tmp_path, data, caplog, write):
    """The `dataset.json` of generators of scenes has the pose of the camera of each image."""
    poses = {"labels": [[name, [0.5] * 25] for name in NAMES]}
    if write == "folder":
        write_folder(tmp_path / "data", content(poses))
    else:
        write_shards(tmp_path / "data", ending="json", label=lambda index: [0.5] * 25)
    read = data("data")
    assert (read.num_classes, len(read.packed.images)) == (0, NUM)
    (line,) = {record.getMessage() for record in caplog.records if "is a vector" in record.getMessage()}
    assert "the label is a vector of 25 numbers, expected a whole number or a name" in line
    assert line.endswith("The images are read without classes.")
    (tmp_path / "poses.json").write_text(json.dumps(poses))
    if write == "folder":
        with pytest.raises(RefusedInput, match=r"data.labels=.*poses.json: .*the label is a vector of 25 numbers"):
            data("data", labels=str(tmp_path / "poses.json"))


@pytest.mark.parametrize(
    ("name", "damage", "sentence"),
    [
        ("data.zip", lambda path: cut(path, 3000), "data.zip: the zip archive is cut off or damaged: copy or download"),
        ("data.tar", lambda path: cut(path, 3 * 512 + 100), "data.tar: the tar archive is cut off or damaged"),
        ("data.tar", lambda path: cut(path, 4 * 512), "data.tar: the tar archive is cut off or damaged"),
        ("data.tar", lambda path: cut(path, 2 * 512), "data.tar: the tar archive is cut off or damaged"),
        ("data.tar", lambda path: cut(path, 0), "data.tar: the tar archive is cut off or damaged"),
    ],
)
def test_an_archive_that_is_cut_off(tmp_path, data, name, damage, sentence):
    FORMS[name](tmp_path / name)
    damage(tmp_path / name)
    with pytest.raises(RefusedInput, match=sentence):
        data(name)


def test_a_shard_that_is_cut_off_is_named(tmp_path, data):
    write_shards(tmp_path / "shards")
    cut(tmp_path / "shards/train-001.tar", 2 * 512)
    with pytest.raises(RefusedInput, match=r"shards/train-001.tar: the tar archive is cut off"):
        data("shards")


def test_a_damaged_file_in_a_zip_is_named(tmp_path, data):
    write_zip(tmp_path / "data.zip", content())
    whole = bytearray((tmp_path / "data.zip").read_bytes())
    whole[whole.index(encoded(2)) + 60] ^= 255
    (tmp_path / "data.zip").write_bytes(whole)
    with pytest.raises(RefusedInput, match=r"data.zip/00000/img00000002.png cannot be read as an image: Bad CRC-32"):
        data("data.zip").setup()
    assert len(data("data.zip", on_error="skip").packed.images) == NUM - 1


@pytest.mark.parametrize("mask", [8, 128])
def test_a_zip_with_one_wrong_byte_raises_no_other_error(tmp_path, mask):
    write_zip(tmp_path / "whole.zip", {"ä.png": b"abc" * 10}, zipfile.ZIP_DEFLATED)
    whole, path = (tmp_path / "whole.zip").read_bytes(), tmp_path / "wrong.zip"
    for position in range(4, len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ mask]) + whole[position + 1 :])
        with suppress(RefusedInput, OSError):
            for name in files_in(path):
                open_file(name)
        archives._opened_once.cache_clear()  # closes the file


@pytest.mark.parametrize("write", [write_zip, write_tar])
@pytest.mark.parametrize("name", ["../a.png", "in/../../a.png", "/a.png"])
def test_a_name_that_leads_out_of_an_archive(tmp_path, data, write, name):
    write(tmp_path / "data", {name: encoded(1)}, top="")
    with pytest.raises(RefusedInput, match="which leads out of the archive"):
        data("data")


@pytest.mark.parametrize(
    ("root", "sentence"),
    [
        ("s3://bucket/train-000.tar", r"s3://bucket/train-000.tar is a URL: folders and archives are read from this"),
        ("train-{000..003}.tar", r"there is no such file; several shards are given by their folder"),
        ("text.txt", r"text.txt is neither a folder nor a zip or tar archive"),
        ("empty.zip", r"empty.zip is an empty file"),
        ("none.zip", r"none.zip: there is no such file"),
        ("gz", r"gz/a.tar.gz: a compressed tar archive cannot be read at any position: decompress it"),
        ("zips", r"zips contains no images .* Its archives are read by their own path, such as zips/data.zip"),
    ],
)
def test_what_is_no_archive_and_no_folder(tmp_path, monkeypatch, root, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("no archive")
    (tmp_path / "empty.zip").touch()
    write_tar(tmp_path / "a.tar", content())
    (tmp_path / "gz").mkdir()
    with tarfile.open(tmp_path / "gz/a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "text.txt")
    (tmp_path / "zips").mkdir()
    write_zip(tmp_path / "zips/data.zip", content())
    with pytest.raises(RefusedInput, match=sentence):
        Folder(root, cache=str(tmp_path / "cache"))


def batches_of_a_training(root, cache, world_size=1):
    """Trains for two epochs, and returns the images and labels of every step on this rank, and the weights."""
    module = tiny_gan(num_classes=5, n_critic=2, seed=3)
    noted, step = [], type(module).training_step

    def training_step(batch, *rest):
        noted.append({name: tensor.clone() for name, tensor in batch.items()})
        return step(module, batch, *rest)

    module.training_step = training_step
    data = Folder(root, cache=cache, **(SETTINGS | {"image_size": 16, "batch_size": 4 // world_size}))
    strategy = NetworkDDP() if world_size > 1 else "auto"
    fit(module, data, 4, devices=world_size, strategy=strategy)
    return noted, module.state_dict()


def on_a_rank(root, cache):
    return batches_of_a_training(root, cache, 2)


@pytest.mark.ranks
@pytest.mark.parametrize("form", ["data.zip", "shards"])
def test_two_ranks_train_on_an_archive_as_on_the_folder(tmp_path, form):
    write_folder(tmp_path / "folder", content())
    FORMS[form](tmp_path / form)
    one, _ = batches_of_a_training(str(tmp_path / form), str(tmp_path / "one"))
    two = {}
    for name in ("folder", form):
        two[name] = ranks.run(
            "tests.data.test_archives.on_a_rank",
            tmp_path,
            root=str(tmp_path / name),
            cache=str(tmp_path / f"{name}_cache"),
        )
    for (ours, weights), (theirs, expected) in zip(two[form], two["folder"], strict=True):
        assert_equal(ours, theirs)
        assert all(torch.equal(weights[name], expected[name]) for name in expected)
    (first, _), (second, _) = two[form]
    for whole, left, right in zip(one, first, second, strict=True):
        for name in whole:  # two batches of a step, each of which both ranks share
            parts = [half[name].view(2, 2, *half[name].shape[1:]) for half in (left, right)]
            assert torch.equal(torch.cat(parts, 1).flatten(0, 1), whole[name])
