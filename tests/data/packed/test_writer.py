"""Packing: one file, interrupted and damaged in every way."""

import json
import logging
import struct
import threading
import zlib
from multiprocessing import current_process

import pytest
import torch

from lit_gans.common.errors import RefusedInput
from lit_gans.data.packed import format as store
from lit_gans.data.packed import progress
from lit_gans.data.packed import writer as packing
from lit_gans.data.packed.progress import Notices
from lit_gans.data.sources.folder import Folder

from .conftest import NUM, ORDER, numbers


def test_progress_lines_without_a_terminal(caplog):
    caplog.set_level(logging.INFO, "lit_gans")
    notices = Notices(total=10_000, begun=2000, start=100.0)
    for done, now in ((2064, 105.0), (4000, 120.0), (4064, 121.0), (6000, 140.0), (10_000, 180.0)):
        notices.update(done, now)
    assert [record.getMessage() for record in caplog.records] == [
        "packing: 4,000 of 10,000, about 60 s left",
        "packing: 6,000 of 10,000, about 40 s left",
    ]


def test_every_chunk_is_reported_without_a_progress_bar(make, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "lit_gans")
    monkeypatch.setattr(packing, "_CHUNK", 16)
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    _ = make().packed
    lines = [record.getMessage().partition(",")[0] for record in caplog.records]
    assert lines[:2] == ["packing: 16 of 40", "packing: 32 of 40"]


@pytest.mark.parametrize("torn", [lambda text: text + '{"done": 9', lambda text: text.removesuffix("\n")])
@pytest.mark.parametrize("half_written", [b"", b"garbage of a chunk that the journal does not know"])
def test_interrupted_packing_continues(make, monkeypatch, half_written, torn):
    monkeypatch.setattr(packing, "_CHUNK", 4)
    monkeypatch.setattr(packing, "available_cores", lambda: 0)  # what is read is counted in this process
    whole = make(cache=None).packed_path  # never written: the name alone
    data, read, seen = make(), [], Folder.source

    class Interrupted(store.Source):
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

    monkeypatch.setattr(Folder, "source", lambda data: Interrupted(seen(data), 30))
    with pytest.raises(KeyboardInterrupt):
        _ = data.packed
    assert not data.packed_path.exists()
    part = data.packed_path.with_name(f"{whole.name}.part")
    journal = data.packed_path.with_name(f"{whole.name}.journal")
    part.write_bytes(part.read_bytes() + half_written)
    journal.write_text(torn(journal.read_text()))
    done = json.loads(journal.read_text().rpartition("\n")[0].splitlines()[-1])["done"]
    assert done > 0
    read.clear()
    monkeypatch.setattr(Folder, "source", lambda data: Interrupted(seen(data), None))
    packed = make().packed
    assert sorted(read) == list(range(done, NUM)), "nothing is decoded twice"
    packed.verify()
    assert numbers(packed.images) == ORDER
    assert packed.labels.tolist() == [0] * 20 + [1] * 20
    assert packed.index.tolist() == list(range(NUM))
    assert not part.exists()
    assert not journal.exists()


def test_worker_processes_pack_bitwise_identical_files(make, monkeypatch, tmp_path):
    monkeypatch.setattr(packing, "_CHUNK", 4)
    files, before = [], torch.get_rng_state()
    for cores in (0, 2):
        monkeypatch.setattr(packing, "available_cores", lambda cores=cores: cores)
        files.append(make(cache=str(tmp_path / f"cache_{cores}")).packed.path)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_daemonic_process_packs_by_itself(make, monkeypatch):
    """It may not have children: the rank of a study, or a worker of a pool."""
    monkeypatch.setattr(packing, "_CHUNK", 4)
    monkeypatch.setattr(packing, "available_cores", lambda: 2)
    monkeypatch.setitem(current_process()._config, "daemon", True)
    assert numbers(make().packed.images) == ORDER


def test_worker_processes_refuse_the_first_damaged_image(make, monkeypatch, tmp_path):
    monkeypatch.setattr(packing, "_CHUNK", 4)
    monkeypatch.setattr(packing, "available_cores", lambda: 2)
    data = make()
    bad = [data.source().paths[index] for index in (13, 9, 30)]
    for path in bad:
        path.write_bytes(b"")
    with pytest.raises(RefusedInput, match=r"the file is empty; data\.on_error=skip leaves bad") as sentence:
        _ = make().packed
    assert str(sentence.value).startswith(str(bad[1]))
    assert len(make(on_error="skip").packed.images) == NUM - 3


def test_concurrent_processes_pack_once(make, monkeypatch):
    packings, run = [], packing._Packing.run
    monkeypatch.setattr(packing._Packing, "run", lambda self, *more: (packings.append(1), run(self, *more)))
    several = [make() for _ in range(3)]
    threads = [threading.Thread(target=lambda data=data: data.packed) for data in several]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(packings) == 1
    assert all(numbers(data.packed.images) == ORDER for data in several)


def truncated(content):
    return content[:-100]


def emptied(content):
    return b""


def one_pixel(content):
    return bytes([content[0] ^ 1]) + content[1:]


def one_label(content):
    return content[: NUM * 300] + b"\7" + content[NUM * 300 + 1 :]


def one_letter(content):
    return content[:-30] + b"?" + content[-29:]


def front_missing(content):
    return content[50:]


def another_version(content):
    _, length, mark = struct.unpack("<IQ8s", content[-20:])
    text = content[-20 - length : -20].replace(b'"format_version": 1', b'"format_version": 9')
    return content[: -20 - length] + text + struct.pack("<IQ8s", zlib.crc32(text), length, mark)


def zeroed(content):
    return bytes(len(content))


@pytest.mark.parametrize(
    "damage", [truncated, emptied, zeroed, one_pixel, one_label, one_letter, front_missing], ids=lambda f: f.__name__
)
def test_damaged_packed_file_is_reported_and_packed_again(make, caplog, damage):
    path = make().packed.path
    good = path.read_bytes()
    path.write_bytes(damage(good))
    data = make(placement="memory")
    data.train_dataloader()
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"{path} is damaged, nothing of it is used: it is packed again."
    ]
    assert path.read_bytes() == good
    assert numbers(data.packed.images) == ORDER
    assert torch.equal(data._resident.images[:NUM], data.packed.images)


def test_packed_file_of_another_version_is_refused_and_not_deleted(make):
    path = make().packed.path
    content = another_version(path.read_bytes())
    path.write_bytes(content)
    with pytest.raises(RefusedInput, match="has format 9, this lit_gans reads 1: delete it, and it is packed again"):
        make(placement="memory").train_dataloader()
    assert path.read_bytes() == content


def test_chunk_that_did_not_reach_the_disk_is_decoded_again(make, monkeypatch):
    """After a loss of power, the journal may confirm what is zeros on disk."""
    monkeypatch.setattr(packing, "_CHUNK", 4)
    monkeypatch.setattr(packing, "available_cores", lambda: 0)
    monkeypatch.setattr(packing._Packing, "_finish", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        _ = make().packed
    monkeypatch.undo()
    part = next(make().cache.glob("*.part"))
    content = bytearray(part.read_bytes())
    content[20 * 300 : 24 * 300] = bytes(4 * 300)
    part.write_bytes(content)
    packed = make().packed
    packed.verify()
    assert numbers(packed.images) == ORDER


def test_unwritable_cache_is_refused(make, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RefusedInput, match=r"cannot be written .* choose another data.cache"):
        _ = make(cache=str(tmp_path / "file" / "inside")).packed
