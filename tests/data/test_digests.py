"""A resumed run recognizes its data by content: it refuses others of the same number, names, sizes and times."""

import os
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from lit_gans.common.errors import RefusedInput
from lit_gans.data import digests
from lit_gans.data.base import ImageData
from lit_gans.data.digests import digest_of_files, fingerprint
from lit_gans.data.packed.datamodule import PackedData
from lit_gans.data.sources.folder import Folder
from lit_gans.data.sources.paired import PairedFolder
from lit_gans.data.sources.points import Ring
from lit_gans.data.sources.stacked_digits import StackedDigits
from lit_gans.data.sources.unpaired import Unpaired

SOURCES = {"flat": Folder, "classes": Folder, "pairs": PairedFolder, "unpaired": Unpaired}
FOLDERS = {"flat": [""], "classes": ["ant", "bee"], "pairs": ["A", "B"], "unpaired": ["A", "B"]}


def write(root, kind, seed=0):
    """Writes uncompressed pictures, whose files are of equal size whatever they show."""
    drawn = np.random.default_rng(seed)
    for folder in FOLDERS[kind]:
        (root / folder).mkdir(parents=True, exist_ok=True)
        for number in range(6):
            pixels = drawn.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / folder / f"{number}.bmp")


@pytest.fixture(params=SOURCES)
def kind(request):
    return request.param


@pytest.fixture
def make(tmp_path, kind):
    """Makes a datamodule on the pictures in a folder."""
    write(tmp_path / "photos", kind)

    def data(root="photos", cache="cache", **settings):
        common = {"image_size": 8, "batch_size": 2, "cache": str(tmp_path / cache)}
        return SOURCES[kind](root=str(tmp_path / root), **{**common, **settings})

    return data


def state_of(data):
    return data.train_dataloader().state_dict()


def resume(data, state):
    data.train_dataloader().load_state_dict(state)


def keep_times(root, change):
    """Changes files, and gives each the times that the file of its name had."""
    before = {path.relative_to(root): path.stat() for path in root.rglob("*.bmp")}
    change()
    for name, stat in before.items():
        os.utime(root / name, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert (root / name).stat().st_size == stat.st_size
        assert (root / name).stat().st_mtime_ns == stat.st_mtime_ns


def test_other_images_with_the_same_names_sizes_and_times_are_packed_again_and_cannot_resume_a_run(
    make, tmp_path, kind
):
    first = make()
    images, state = first.packed.images.clone(), state_of(first)
    keep_times(tmp_path / "photos", lambda: write(tmp_path / "photos", kind, seed=1))
    assert not torch.equal(make().packed.images, images)
    with pytest.raises(RefusedInput, match=r"on other images than the .* of this run.*init_from=PATH"):
        resume(make(), state)


def test_moved_data_and_data_that_are_packed_again_pass(make, tmp_path):
    first = make()
    state, path = state_of(first), first.packed.path
    resume(make(), state)
    shutil.move(tmp_path / "photos", tmp_path / "moved")
    moved = make("moved")
    assert moved.packed.path == path, "not packed again"
    resume(moved, state)
    shutil.copytree(tmp_path / "moved", tmp_path / "copied")  # with other times
    resume(make("copied", cache="elsewhere"), state)


def test_another_order_and_other_classes_are_refused(tmp_path):
    write(tmp_path / "photos", "classes")

    def make(root="photos"):
        return Folder(str(tmp_path / root), image_size=8, batch_size=2, cache=str(tmp_path / "cache"))

    state = state_of(make())
    shutil.copytree(tmp_path / "photos", tmp_path / "reordered")
    (tmp_path / "reordered/ant/0.bmp").rename(tmp_path / "reordered/ant/9.bmp")
    with pytest.raises(RefusedInput, match="or on the same images with other labels or in another order"):
        resume(make("reordered"), state)
    shutil.copytree(tmp_path / "photos", tmp_path / "others")
    (tmp_path / "others/bee/0.bmp").rename(tmp_path / "others/ant/6.bmp")
    assert torch.equal(make("others").packed.images, make().packed.images)
    assert not torch.equal(make("others").packed.labels, make().packed.labels)
    with pytest.raises(RefusedInput, match="with other labels"):
        resume(make("others"), state)


def test_a_link_to_another_image_is_packed_again(tmp_path):
    write(tmp_path / "store", "flat")
    (tmp_path / "photos").mkdir()
    for path in (tmp_path / "store").iterdir():
        (tmp_path / "photos" / path.name).symlink_to(path)

    def images():
        data = Folder(str(tmp_path / "photos"), image_size=8, batch_size=2, cache=str(tmp_path / "cache"))
        return data.packed.images.clone()

    before = images()
    keep_times(tmp_path / "store", lambda: write(tmp_path / "store", "flat", seed=1))
    assert not torch.equal(images(), before)


def test_files_decoded_differently_by_another_library_pass(make, monkeypatch):
    state = state_of(make())
    monkeypatch.setattr(PackedData, "_packed_fingerprint", lambda data: fingerprint([data.packed.images + 1]))
    resume(make(cache="elsewhere"), state)


def test_contents_are_read_once_and_again_only_after_a_change(tmp_path, monkeypatch):
    write(tmp_path / "photos", "flat")
    paths, read = sorted((tmp_path / "photos").iterdir()), []
    content = digests._digest_of_content
    monkeypatch.setattr(digests, "_digest_of_content", lambda path: read.append(path.name) or content(path))
    first = digest_of_files(paths, tmp_path / "cache")
    assert sorted(read) == [path.name for path in paths]
    assert digest_of_files(paths, tmp_path / "cache") == first
    assert len(read) == len(paths)
    os.utime(paths[0])
    assert digest_of_files(paths, tmp_path / "cache") == first, "the same contents"
    assert digest_of_files(paths[::-1], tmp_path / "cache") != first
    assert digest_of_files([*paths, tmp_path / "gone"], tmp_path / "cache") != first
    shutil.copy(paths[0], tmp_path / "0.npy")
    renamed = [tmp_path / "0.npy", *paths[1:]]
    assert digest_of_files(renamed, tmp_path / "cache") != first, "the extension decides how a file is read"


class InMemory(ImageData):
    seed_of_images = 0

    def load(self):
        generator = torch.Generator().manual_seed(self.seed_of_images)
        images = torch.randint(0, 256, (20, 1, 4, 4), generator=generator, dtype=torch.uint8)
        return images, torch.zeros(20, dtype=torch.long)


def in_memory(**settings):
    data = InMemory(image_size=4, batch_size=4)
    vars(data).update(settings)
    return data


def test_images_in_memory_are_recognized():
    state = state_of(in_memory())
    resume(in_memory(), state)
    with pytest.raises(RefusedInput, match="trained on other images than the 20"):
        resume(in_memory(seed_of_images=1), state)


def test_points_and_stacked_digits_are_recognized():
    state = state_of(Ring(num_points=64, batch_size=8))
    resume(Ring(num_points=64, batch_size=8), state)
    with pytest.raises(RefusedInput, match="trained on other images"):
        resume(Ring(num_points=64, batch_size=8, std=0.2), state)
    stacked = StackedDigits(num_images=64, batch_size=8)
    state = state_of(stacked)
    resume(StackedDigits(num_images=64, batch_size=8), state)
    stacked = StackedDigits(num_images=64, batch_size=8)
    stacked.dataset.digits = 255 - stacked.dataset.digits
    with pytest.raises(RefusedInput, match="trained on other images"):
        resume(stacked, state)


def test_images_that_are_computed_for_each_step_are_not_read():
    class Lazy(ImageData):
        def make_dataset(self):
            class Never(torch.utils.data.Dataset):
                labels = torch.zeros(20)

                def __len__(self):
                    return 20

                def __getitem__(self, rows):
                    raise AssertionError("reads an image")

            return Never()

    data = Lazy(image_size=4, batch_size=4)
    resume(data, state_of(data))
