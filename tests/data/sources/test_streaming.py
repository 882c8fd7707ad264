"""A local folder as the remote: the same order on any ranks, with any workers, after any resume."""

import json
import shutil
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from PIL import Image

from lit_gans.common.errors import RefusedInput
from lit_gans.data.digests import fingerprint
from lit_gans.data.sources import streaming
from lit_gans.data.sources.folder import Folder
from lit_gans.data.sources.paired import PairedFolder
from lit_gans.data.sources.streaming import Streaming, write_stream
from tests.checkpoints.hostile import Payload
from tests.data.conftest import NUM, steps

pytestmark = pytest.mark.skipif(find_spec("litdata") is None, reason="no litdata")


@pytest.fixture
def packed(make):
    return make(flip=True, seed=3)


@pytest.fixture
def stream(packed, tmp_path):
    write_stream(packed, tmp_path / "remote", chunk_bytes=1600)
    assert len(list((tmp_path / "remote").glob("*.bin"))) > 3

    def make(**settings):
        common = {"root": f"local:{tmp_path / 'remote'}", "cache": str(tmp_path / "fetched"), "num_workers": 0}
        sizes = {"image_size": 10, "batch_size": 4, "flip": True, "seed": 3, "window": 0}
        return Streaming(**{**common, **sizes, **settings})

    return make


def same(ours, theirs):
    ours, theirs = list(ours), list(theirs)
    assert len(ours) == len(theirs) > 0
    return all(torch.equal(a[key], b[key]) for a, b in zip(ours, theirs, strict=True) for key in ("image", "label"))


@pytest.mark.parametrize("workers", [0, 2])
def test_without_a_window_images_equal_the_packed_file_bitwise(packed, stream, workers):
    assert same(steps(stream(num_workers=workers), range(2)), steps(packed, range(2)))
    assert torch.equal(torch.cat(list(stream().real_batches(7))), packed.packed.images)
    assert torch.equal(stream().real_labels(), packed.packed.labels)


class OnItsWay:
    """A stream whose chunk another process is fetching: it comes at the third look."""

    looks = 0

    def __getitem__(self, row):
        self.looks += 1
        if self.looks < 3:
            raise FileNotFoundError
        return row


def test_waits_for_a_chunk_that_another_process_downloads(monkeypatch):
    stream = OnItsWay()
    assert streaming._item(stream, 7) == 7
    assert stream.looks == 3
    stream.looks = 0
    monkeypatch.setattr(streaming, "_WAITS", -1.0)
    with pytest.raises(FileNotFoundError):
        streaming._item(stream, 7)


def test_window_reads_consecutive_chunks(stream):
    data = stream(window=10)
    rows, chunks = torch.cat(list(data.train_dataloader().sampler)) % NUM, torch.tensor(data.dataset.chunks)
    used = [(torch.bucketize(part, chunks, right=True) - 1).unique() for part in rows.split(10)]
    assert len(chunks) > 5
    assert max(map(len, used)) <= 10 * len(chunks) // NUM + 2


def test_missing_streams_and_other_sizes_are_refused(stream, tmp_path, packed):
    with pytest.raises(
        RefusedInput, match=r"its images have the shape \(3, 10, 10\): set data.channels=3 and data.image_size=10"
    ):
        stream(image_size=16).setup("fit")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RefusedInput, match="empty: no stream can be read there"):
        stream(root=str(tmp_path / "empty"), cache=None).setup("fit")
    with pytest.raises(RefusedInput, match="remote is not empty"):
        write_stream(packed, tmp_path / "remote")
    with pytest.raises(RefusedInput, match="cache_bytes=-1 must be at least 0"):
        stream(cache_bytes=-1)


def test_a_stream_of_pickles_runs_no_code(tmp_path):
    from litdata import StreamingDataset
    from litdata.streaming.writer import BinaryWriter

    trace, folder = tmp_path / "executed", tmp_path / "hostile"
    folder.mkdir()
    writer = BinaryWriter(str(folder), chunk_bytes=1500)
    writer.add_item(0, {"image": Payload(trace), "label": 1})
    writer.done()
    writer.merge()
    StreamingDataset(str(folder))[0]
    assert trace.exists(), "LitData unpickles it"
    trace.unlink()
    with pytest.raises(RefusedInput, match=r"index.json: its values are stored as pickle"):
        Streaming(root=str(folder), image_size=8).setup("fit")
    assert not trace.exists()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('["numpy", "int"]', '["numpy:pickle", "int"]', "its values are stored as numpy:pickle"),
        ("builtins.dict", "collections.defaultdict", "its rows are of type collections.defaultdict"),
        ("chunk-0-1.bin", "../outside.bin", "outside.bin is outside of the folder"),
    ],
)
def test_an_index_names_no_code_and_no_file_elsewhere(stream, tmp_path, old, new, sentence):
    index = tmp_path / "remote/index.json"
    text = index.read_text()
    assert old in text
    index.write_text(text.replace(old, new))
    with pytest.raises(RefusedInput, match=f"index.json: .*{sentence}"):
        stream().setup("fit")


class Reads:
    """Counts the rows that are read of all streams."""

    def __init__(self, monkeypatch):
        self.rows, item = [], streaming._item
        monkeypatch.setattr(streaming, "_item", lambda stream, row: self.rows.append(row) or item(stream, row))


def test_the_stream_has_its_digest_and_its_labels_and_a_share_reads_only_its_rows(packed, stream, monkeypatch):
    reads = Reads(monkeypatch)
    data = stream()
    assert data.real_fingerprint() == packed.real_fingerprint() == fingerprint([packed.packed.images])
    assert data.digests()["images"] == packed.digests()["images"]
    assert torch.equal(data.real_labels(), packed.packed.labels)
    assert reads.rows == []
    share = torch.cat(list(data.real_batches(4, start=8, stop=15)))
    assert torch.equal(share, packed.packed.images[8:15])
    assert reads.rows == [*range(8, 15)]


def test_a_stream_without_a_digest_is_read_once(packed, stream, tmp_path, monkeypatch):
    monkeypatch.setenv("LIT_GANS_CACHE", str(tmp_path / "digests"))
    index = tmp_path / "remote/index.json"
    content = json.loads(index.read_text())
    del content["lit_gans"]
    index.write_text(json.dumps(content))
    reads = Reads(monkeypatch)
    for _ in range(2):
        data = stream()
        assert data.digests()["images"] == packed.digests()["images"]
        assert torch.equal(data.real_labels(), packed.packed.labels)
    assert reads.rows == [*range(NUM)]


def test_another_stream_at_the_same_address_is_refused(make, stream, tmp_path):
    state = stream().train_dataloader().state_dict()
    stream().train_dataloader().load_state_dict(state)
    shutil.rmtree(tmp_path / "remote")
    for path in sorted((tmp_path / "photos").rglob("*.png")):
        with Image.open(path) as picture:
            mirrored = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        mirrored.save(path)
    other = Folder(str(tmp_path / "photos"), image_size=10, batch_size=4, cache=str(tmp_path / "cache"))
    write_stream(other, tmp_path / "remote", chunk_bytes=1600)
    with pytest.raises(RefusedInput, match="trained on other images than the 40 of this run"):
        stream().train_dataloader().load_state_dict(state)


def test_the_same_images_in_other_chunks_have_another_order(packed, tmp_path):
    def loader(name, window):
        settings = {"image_size": 10, "batch_size": 4, "flip": True, "seed": 3, "window": window}
        return Streaming(root=str(tmp_path / name), **settings).train_dataloader()

    for name, size in (("small", 1600), ("large", 6400)):
        write_stream(packed, tmp_path / name, chunk_bytes=size)
    loader("large", 0).load_state_dict(loader("small", 0).state_dict())
    state = loader("small", 8).state_dict()
    loader("small", 8).load_state_dict(state)
    loader("large", 8).load_state_dict({name: value for name, value in state.items() if name != "chunks"})  # older
    with pytest.raises(RefusedInput, match="the checkpoint was trained on data with chunks="):
        loader("large", 8).load_state_dict(state)


def last_value_changed(path):
    content = bytearray(path.read_bytes())
    content[-20] ^= 255
    path.write_bytes(content)


@pytest.mark.parametrize("known", [True, False])
def test_another_content_of_a_chunk_is_another_stream(packed, stream, tmp_path, known):
    if not known:
        index = tmp_path / "remote/index.json"
        index.write_text(
            json.dumps({key: value for key, value in json.loads(index.read_text()).items() if key[0] != "l"})
        )
    before = stream(root=str(tmp_path / "remote")).digests()
    assert before["images"] == packed.digests()["images"]
    last_value_changed(sorted((tmp_path / "remote").glob("*.bin"))[-1])
    data = stream(root=str(tmp_path / "remote"))
    assert data.digests() != before
    assert data.real_fingerprint() == fingerprint(data.real_batches()) != packed.real_fingerprint()


def written(folder, *items):
    """A stream that LitData itself writes."""
    from litdata.streaming.writer import BinaryWriter

    folder.mkdir()
    writer = BinaryWriter(str(folder), chunk_bytes=1500)
    for row, item in enumerate(items):
        writer.add_item(row, item)
    writer.done()
    writer.merge()
    return Streaming(root=str(folder), image_size=8, batch_size=2, num_workers=0)


def noise(*shape):
    return np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)


def test_a_stream_without_labels_has_no_classes(tmp_path):
    data = written(tmp_path / "plain", *[{"image": noise(3, 8, 8)}] * 4)
    (first, *_) = data.train_dataloader()
    assert first["label"].tolist() == data.real_labels().tolist()[:2] == [0, 0]
    assert data.num_classes == 0


def test_a_stream_has_the_classes_of_its_source(tmp_path, stream, packed):
    assert stream().num_classes == packed.num_classes == 2
    assert stream().class_names == packed.class_names == ["class_0", "class_1"]
    assert (
        written(tmp_path / "own", *({"image": noise(3, 8, 8), "label": label} for label in (1, 0, 4))).num_classes == 5
    )


def test_floats_are_measured_in_8_bits(make, tmp_path):
    packed = make(dtype="float32")
    write_stream(packed, tmp_path / "floats")
    stream = Streaming(root=str(tmp_path / "floats"), image_size=10)
    assert stream.dataset[torch.arange(2)]["image"].dtype == torch.float32
    for ours, theirs in zip(stream.real_batches(7), packed.real_batches(7), strict=True):
        assert ours.dtype == torch.uint8
        assert torch.equal(ours, theirs)
    assert stream.real_fingerprint() == packed.real_fingerprint()


@pytest.mark.parametrize("kind", ["2 channels", "pairs"])
def test_images_that_no_stream_can_have_are_refused(make, tmp_path, kind):
    if kind == "pairs":
        (tmp_path / "pairs/train").mkdir(parents=True)
        Image.new("RGB", (20, 10)).save(tmp_path / "pairs/train/a.png")
        data = PairedFolder(str(tmp_path / "pairs"), image_size=10, cache=str(tmp_path / "cache"))
    else:
        data = make(channels=2)
    with pytest.raises(RefusedInput, match=f"a stream cannot have images of {kind}.*: use data.cache on a shared disk"):
        write_stream(data, tmp_path / "new")
    assert not (tmp_path / "new").exists()


REFUSED = {
    "height, width and channels": (
        noise(8, 8, 3),
        r"shape \(8, 8, 3\): .* the channels are last: write image.transpose\(2, 0, 1\)",
    ),
    "no channels": (noise(8, 8), r"shape \(8, 8\): expected \(channels, height, width\); write image\[None\]"),
    "another size": (
        noise(3, 6, 6),
        r"its images have the shape \(3, 6, 6\): set data.channels=3 and data.image_size=6",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_images_of_another_layout_are_refused(tmp_path, name):
    image, sentence = REFUSED[name]
    with pytest.raises(RefusedInput, match=f"data.root=.*: .*{sentence}"):
        written(tmp_path / "own", {"image": image, "label": 0}).setup()


def test_other_names_and_images_of_several_sizes_are_refused(tmp_path):
    named = written(tmp_path / "named", *[{"pixel_values": noise(3, 8, 8), "label": 0}] * 2)
    with pytest.raises(RefusedInput, match=r"its rows have pixel_values, label: expected image, and label if"):
        named.setup()
    sizes = written(tmp_path / "sizes", {"image": noise(3, 8, 8)}, {"image": noise(3, 8, 9)})
    with pytest.raises(
        RefusedInput,
        match=r"image 1 has the shape \(3, 8, 9\), but the first image has the shape \(3, 8, 8\)",
    ):
        list(sizes.real_batches())
    negative = written(tmp_path / "negative", {"image": noise(3, 8, 8), "label": -1})
    with pytest.raises(RefusedInput, match="image 0 has the label -1: expected an integer >= 0"):
        list(negative.real_batches())


def test_images_of_several_types_are_refused(tmp_path):
    data = written(tmp_path / "own", {"image": noise(3, 8, 8)}, {"image": noise(3, 8, 8).astype(np.float32) / 255})
    with pytest.raises(RefusedInput, match=r"image 1 has torch.float32 values, but the first image has torch.uint8"):
        list(data.real_batches())


@pytest.mark.parametrize("is_new", [True, False])
def test_an_interrupted_stream_is_removed_and_written_at_the_next_call(packed, tmp_path, monkeypatch, is_new):
    folder = tmp_path / "remote"
    if not is_new:
        folder.mkdir()

    def interrupted(*args):
        assert any(folder.iterdir())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(streaming, "_digest_of_chunks", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_stream(packed, folder, chunk_bytes=1600)
    assert folder.exists() != is_new
    write_stream(packed, folder, chunk_bytes=1600)
    assert len(Streaming(root=str(folder), image_size=10).real_labels()) == NUM


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"chunks": [], "config": {}}'])
def test_an_index_of_something_else_is_named(stream, tmp_path, content):
    (tmp_path / "remote/index.json").write_text(content)
    with pytest.raises(RefusedInput, match=r"index.json: this is not the index of a stream: .*write_stream"):
        stream().setup("fit")


def test_a_negative_window_is_refused(stream):
    with pytest.raises(RefusedInput, match="window=-1 must be at least 0"):
        stream(window=-1)
