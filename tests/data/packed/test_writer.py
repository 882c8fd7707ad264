"""Packing: once, whoever asks, interrupted and damaged in every way."""

import multiprocessing
import os
import select
import shutil
import signal
import sys
import threading
from functools import partial

import pytest
import torch

from lit_gans.common.errors import RefusedInput
from lit_gans.data.packed import writer as packing
from lit_gans.data.packed.format import IMAGES, ROWS, PerProcess, Source, lines_in, open_good
from lit_gans.data.sources.folder import Files, Folder
from tests.data.conftest import NUM, ORDER, numbers


def lost_images(images, rows):
    """After a loss of power, a line may speak of what is zeros on the disk."""
    content = bytearray(images.read_bytes())
    content[128 + 20 * 300 : 128 + 24 * 300] = bytes(4 * 300)
    images.write_bytes(content)


INTERRUPTIONS = {
    "nothing": (lambda images, rows: None, 28),
    "half_a_line": (lambda images, rows: rows.write_bytes(rows.read_bytes() + b'89abcdef {"stop": 9'), 28),
    "no_end_of_the_last_line": (lambda images, rows: rows.write_bytes(rows.read_bytes()[:-1]), 24),
    "images_without_a_line": (lambda images, rows: images.write_bytes(images.read_bytes() + b"without a line"), 28),
    "lost_images": (lost_images, 20),
    "no_lines": (lambda images, rows: rows.unlink(), 0),
}


@pytest.mark.parametrize(("damage", "kept"), INTERRUPTIONS.values(), ids=INTERRUPTIONS)
def test_interrupted_packing_continues(make, monkeypatch, tmp_path, damage, kept):
    (tmp_path / "photos/class_0/002.png").write_bytes(b"no picture")  # so that fewer images are kept than were read
    make = partial(make, on_error="skip")
    monkeypatch.setattr(packing, "_CHUNK", 4)
    monkeypatch.setattr(packing, "available_cores", lambda: 0)  # what is read is counted in this process
    read, source = [], Folder.source

    class Interrupted(Source):
        def __init__(self, source, stop):
            self.source, self.stop = source, stop
            self.name, self.label = source.name, source.label

        def __len__(self):
            return len(self.source)

        def picture(self, index, notes):
            if index == self.stop:
                raise KeyboardInterrupt
            read.append(index)
            return self.source.picture(index, notes)

    monkeypatch.setattr(Folder, "source", lambda data: Interrupted(source(data), 30))
    with pytest.raises(KeyboardInterrupt):
        _ = make().packed
    path = make().packed_path
    assert not path.exists()
    part = path.with_name(f"{path.name}.part")
    damage(part / IMAGES, part / ROWS)
    read.clear()
    monkeypatch.setattr(Folder, "source", lambda data: Interrupted(source(data), None))
    packed = make().packed
    assert sorted(read) == list(range(kept, NUM)), "nothing is decoded twice"
    packed.verify()
    assert numbers(packed.images) == [number for number in ORDER if number != 2]
    assert packed.labels.tolist() == [0] * 19 + [1] * 20
    assert not part.exists()
    interrupted = contents(path)
    shutil.rmtree(path)
    assert contents(make().packed.path) == interrupted, "as if packed at once"


def contents(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_worker_processes_pack_bitwise_identical_files(make, monkeypatch, tmp_path):
    monkeypatch.setattr(packing, "_CHUNK", 4)
    files, before = [], torch.get_rng_state()
    for cores in (0, 2):
        monkeypatch.setattr(packing, "available_cores", lambda cores=cores: cores)
        files.append(make(cache=str(tmp_path / f"cache_{cores}")).packed.path)
    assert contents(files[0]) == contents(files[1])
    assert torch.equal(torch.get_rng_state(), before)


def test_a_daemonic_process_packs_by_itself(make, monkeypatch):
    """It may not have children: the rank of a study, or a worker of a pool."""
    monkeypatch.setattr(packing, "_CHUNK", 4)
    monkeypatch.setattr(packing, "available_cores", lambda: 2)
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    assert numbers(make().packed.images) == ORDER


def test_worker_processes_refuse_the_damaged_images_of_the_first_chunk_that_has_some(make, monkeypatch):
    monkeypatch.setattr(packing, "_CHUNK", 20)
    monkeypatch.setattr(packing, "available_cores", lambda: 2)
    paths = make().source().paths
    for path in (paths[13], paths[9], paths[30]):
        path.write_bytes(b"")
    with pytest.raises(
        RefusedInput, match=r"^2 or more files cannot be read; data\.on_error=skip leaves bad files out\."
    ) as raised:
        _ = make().packed
    for line, path in zip(str(raised.value).splitlines()[1:], (paths[9], paths[13]), strict=True):
        assert line.startswith(f"    {path} cannot be read as an image: cannot identify image file")
    assert len(make(on_error="skip").packed.images) == NUM - 3
    monkeypatch.setattr(packing, "_LISTED", 1)
    with pytest.raises(RefusedInput, match=r"^2 or more files cannot be read") as raised:
        _ = make().packed
    assert len(str(raised.value).splitlines()) == 2


def test_files_that_were_skipped_for_a_missing_package_are_read_once_it_is_installed(make, monkeypatch):
    read = Files.picture

    def picture(source, index, notes):
        if index == 9:
            raise RefusedInput("the package png is missing")
        return read(source, index, notes)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "picture", picture)
        patch.setattr("lit_gans.data.packed.datamodule.installed_readers", lambda: ["tifffile"])
        assert len(make(on_error="skip").packed.images) == NUM - 1
    monkeypatch.setattr("lit_gans.data.packed.datamodule.installed_readers", lambda: ["png", "tifffile"])
    assert len(make(on_error="skip").packed.images) == NUM


def test_nothing_is_decoded_after_the_chunk_with_the_first_damaged_image(make, monkeypatch):
    monkeypatch.setattr(packing, "_CHUNK", 4)
    monkeypatch.setattr(packing, "available_cores", lambda: 0)  # what is read is counted in this process
    make().source().paths[0].write_bytes(b"")
    read, decode = [], packing._Chunks.__getitem__
    monkeypatch.setattr(
        packing._Chunks, "__getitem__", lambda chunks, start: (read.append(start), decode(chunks, start))[1]
    )
    with pytest.raises(RefusedInput, match="cannot be read as an image"):
        _ = make().packed
    assert read == [0]


def test_a_single_damaged_image_is_refused_in_one_sentence(make):
    path = make().source().paths[9]
    path.write_bytes(b"")
    with pytest.raises(RefusedInput, match=r"cannot identify image file .*; data\.on_error=skip leaves bad") as raised:
        _ = make().packed
    assert str(raised.value).startswith(str(path))


def test_labels_that_are_not_one_for_each_image_are_refused_before_an_image_is_read(make, monkeypatch):
    source = Folder.source

    def with_a_label_more(data):
        found = source(data)
        found.labels = [*found.labels, 0]
        monkeypatch.setattr(found, "picture", lambda *_: pytest.fail("an image was read"))
        return found

    monkeypatch.setattr(Folder, "source", with_a_label_more)
    with pytest.raises(RefusedInput, match=f"Folder: {NUM + 1} labels for {NUM} images"):
        make().packed  # noqa: B018


def test_concurrent_processes_pack_once(make, monkeypatch):
    packings, write = [], packing._write
    monkeypatch.setattr(packing, "_write", lambda *given: (packings.append(1), write(*given))[1])
    several = [make() for _ in range(3)]
    threads = [threading.Thread(target=lambda data=data: data.packed) for data in several]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(packings) == 1
    assert all(numbers(data.packed.images) == ORDER for data in several)


DAMAGES = {
    "truncated": lambda content: content[:-100],
    "emptied": lambda content: b"",
    "a_bit_flipped": lambda content: content[:-30] + bytes([content[-30] ^ 1]) + content[-29:],
}


@pytest.mark.parametrize("file", [IMAGES, ROWS])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_images_are_reported_and_packed_again(make, caplog, file, damage):
    path = make().packed.path
    good = contents(path)
    (path / file).write_bytes(damage(good[file]))
    data = make(placement="memory")
    data.train_dataloader()
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"{path} is damaged and not used: the images are packed again."
    ]
    assert contents(path) == good
    assert numbers(data.packed.images) == ORDER
    assert torch.equal(data._resident.images[:NUM], data.packed.images)


def test_a_missing_line_is_found(make, monkeypatch):
    """Its checksum is right in every line that is left."""
    monkeypatch.setattr(packing, "_CHUNK", 4)
    path = make().packed.path
    lines = (path / ROWS).read_bytes().splitlines(keepends=True)
    assert len(list(lines_in(path / ROWS))) == 1 + NUM // 4
    (path / ROWS).write_bytes(b"".join(lines[:5] + lines[6:]))
    assert open_good(path) is None


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux")
def test_the_processes_of_a_killed_packing_end(monkeypatch):
    """They wait for a reader of their pipe, which each of them keeps open."""
    monkeypatch.setattr(packing, "available_cores", lambda: 2)
    decoder, starts = [{"images": bytes(2**20)}] * 200, range(200)

    def read_one(reader):
        os.close(reader)
        chunks = packing._decoded(decoder, starts)  # kept, so that its processes go on
        next(chunks)
        os.write(writer, b"1")
        signal.pause()

    reader, writer = os.pipe()  # read to its end when all processes with a copy of the writer have ended
    packing_process = multiprocessing.get_context("fork").Process(target=read_one, args=(reader,))
    packing_process.start()
    os.close(writer)
    try:
        assert os.read(reader, 1) == b"1"
        packing_process.kill()
        packing_process.join()
        assert select.select([reader], [], [], 20)[0], "a process is left"
        assert os.read(reader, 1) == b""
    finally:
        os.close(reader)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux")
def test_each_process_opens_its_own_once():
    calls = []
    opened = PerProcess(lambda: (calls.append(1), os.getpid(), len(calls)))
    assert opened() == opened() == (None, os.getpid(), 1)
    fork = multiprocessing.get_context("fork")
    queue = fork.SimpleQueue()
    child = fork.Process(target=lambda: queue.put([opened(), opened()]))
    child.start()
    assert queue.get() == [(None, child.pid, 2)] * 2
    child.join()
    assert opened() == (None, os.getpid(), 1)


@pytest.mark.parametrize("name", ["x" * 300, "/".join(["x" * 200] * 30)])
def test_a_cache_whose_name_is_too_long_is_refused(make, tmp_path, name):
    with pytest.raises(RefusedInput, match=r"cannot be written \(File name too long\): choose another data.cache"):
        make(cache=str(tmp_path / name)).packed  # noqa: B018


@pytest.mark.parametrize("cores", [0, 2])
def test_an_error_of_the_system_in_a_source_is_no_error_of_the_cache(make, monkeypatch, cores):
    def picture(source, index, notes):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(packing, "_CHUNK", 4)
    monkeypatch.setattr(packing, "available_cores", lambda: cores)
    monkeypatch.setattr(Files, "picture", picture)
    with pytest.raises(RefusedInput, match=r"000.png cannot be read: \[Errno 5\] Input/output error") as raised:
        make().packed  # noqa: B018
    assert "data.cache" not in str(raised.value)
