"""The copy of a run folder: the same files with the same content, complete after every checkpoint."""

import csv
import io
import shutil
from pathlib import Path

import pytest
from lightning.pytorch import Callback

from lit_gans.callbacks import Mirror, RunCheckpoint, Samples
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.checkpoints.remote import Remote
from lit_gans.common.errors import FailedWrite, RefusedInput


@pytest.fixture
def address(tmp_path):
    return f"memory://bucket/{tmp_path.name}/run"


@pytest.fixture
def train(tiny_gan, random_images, fit, tmp_path, address):
    """Trains into the folder of a run, which is copied."""

    def run(max_steps, *callbacks, mirror=None, **settings):
        folder = tmp_path / "run"
        all_callbacks = [
            mirror or Mirror(address),
            Samples(every_n_steps=2, num=4),
            RunCheckpoint(**settings),
            *callbacks,
        ]
        logger = CSVMetrics(str(folder))
        arguments = {"callbacks": all_callbacks, "logger": logger, "log_every_n_steps": 1, "enable_checkpointing": True}
        fit(tiny_gan(), random_images(), max_steps, default_root_dir=folder, **arguments)
        return folder

    return run


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def there(address: str) -> dict[str, bytes]:
    remote = Remote(address)
    return {name: remote._fs.cat_file(f"{remote._root}/{name}") for name in remote.files()}


class EndsAt(Callback):
    """Raises an error at the start of an iteration, once what was being copied has arrived."""

    def __init__(self, step, mirror):
        self.step, self.mirror = step, mirror

    def on_train_batch_start(self, trainer, *_):
        if self.mirror._sending is not None:
            self.mirror._sending.exception()
        if trainer.global_step == self.step:
            raise MemoryError("killed")


def test_at_the_end_the_copy_has_the_files_of_the_folder(train, address):
    folder = train(7, every_n_train_steps=2, keep_last=2, keep_every_n_train_steps=3)
    steps = (3, 6, 7)
    expected = {f"checkpoints/step-{step:08d}.ckpt" for step in steps} | {"checkpoints/last.ckpt", "metrics.csv"}
    expected |= {f"samples/{step:06d}.png" for step in (0, 2, 4, 6, 7)} | {"samples/training.gif"}
    assert content(folder).keys() == expected
    assert there(address) == content(folder)


def test_the_copy_is_updated_after_each_checkpoint(train, address, monkeypatch):
    mirror = Mirror(address)
    monkeypatch.setattr(mirror, "on_exception", lambda *_: None)  # a kill: nothing more is copied
    with pytest.raises(MemoryError):
        train(9, EndsAt(5, mirror), mirror=mirror, every_n_train_steps=2)
    assert read_checkpoint(address)["global_step"] == 4
    rows = [int(row["step"]) for row in csv.DictReader(io.StringIO(there(address)["metrics.csv"].decode()))]
    assert rows[:4] == [0, 1, 2, 3], "of iterations 1 to 4"


def test_a_run_that_fails_is_copied_until_then(train, address, tmp_path):
    mirror = Mirror(address)
    with pytest.raises(MemoryError):
        train(9, EndsAt(5, mirror), mirror=mirror, every_n_train_steps=5)
    assert there(address) == content(tmp_path / "run")


def test_a_checkpoint_arrives_after_its_rows_and_a_marker_last(train, address, monkeypatch):
    written, removed = [], []
    monkeypatch.setattr(Remote, "write", lambda _, name, content: written.append(name))
    monkeypatch.setattr(Remote, "remove", lambda _, name: removed.append((name, len(written))))
    mirror = Mirror(address)
    folder = train(2, mirror=mirror)
    sharded = folder / "checkpoints" / "best.ckpt"
    sharded.mkdir()
    for name in ("commit.json", "rest.pt", "shard-00001.safetensors"):
        (sharded / name).touch()
    written.clear()
    mirror._sent.clear()
    mirror._start().result()
    checkpoints = [name for name in written if name.startswith("checkpoints/")]
    marker = "checkpoints/best.ckpt/commit.json"
    assert written[-4:] == checkpoints
    assert checkpoints[-1] == marker
    assert removed == [(marker, 0)], "the earlier marker stays until the new shards have arrived"


def test_a_checkpoint_that_is_replaced_while_its_rows_are_copied_arrives_as_it_was(train, address, monkeypatch):
    mirror, write = Mirror(address), Remote.write
    folder = train(2, mirror=mirror)
    last = folder / "checkpoints" / "last.ckpt"
    before = last.read_bytes()

    def replaced_meanwhile(remote, name, content):
        if name == "metrics.csv":
            (folder / "newer").write_bytes(b"of rows that are not copied yet")
            (folder / "newer").replace(last)
        write(remote, name, content)

    monkeypatch.setattr(Remote, "write", replaced_meanwhile)
    mirror._sent.clear()
    mirror._start().result()
    assert there(address)["checkpoints/last.ckpt"] == before
    mirror._start().result()
    assert there(address)["checkpoints/last.ckpt"] == last.read_bytes()


def test_unchanged_files_are_copied_once_and_unfinished_ones_never(train, address, monkeypatch):
    written, write = [], Remote.write
    monkeypatch.setattr(Remote, "write", lambda *all: (written.append(all[1]), write(*all)))
    mirror = Mirror(address)
    folder = train(6, EndsAt(99, mirror), mirror=mirror, every_n_train_steps=2)
    assert written.count("samples/000000.png") == 1
    assert written.count("checkpoints/last.ckpt") == 3
    (folder / "checkpoints" / "last.ckpt.lit_gans_part").touch()
    mirror._start().result()
    assert "checkpoints/last.ckpt.lit_gans_part" not in there(address)


def test_what_cannot_be_copied_is_tried_again(train, address, monkeypatch, caplog):
    write, mirror = Remote.write, Mirror(address)
    calls = []

    def fails_once(remote, name, content):
        calls.append(name)
        if len(calls) == 1:
            raise ConnectionError("no route to host")
        write(remote, name, content)

    monkeypatch.setattr(Remote, "write", fails_once)
    folder = train(4, EndsAt(99, mirror), mirror=mirror, every_n_train_steps=1)
    assert there(address) == content(folder)
    assert caplog.messages.count(f"{address} cannot be written: no route to host") == 1


def test_a_copy_that_is_not_complete_at_the_end_is_an_error(train, address, monkeypatch, tmp_path):
    def fails(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Remote, "write", fails)
    with pytest.raises(FailedWrite, match=f"{address} cannot be written: Permission denied"):
        train(2)
    assert read_checkpoint(tmp_path / "run")["global_step"] == 2


def test_what_is_deleted_here_stays_there(train, address, tmp_path):
    mirror = Mirror(address)

    class Deletes(Callback):
        def on_train_batch_start(self, trainer, *_):
            if trainer.global_step == 4:
                mirror._sending.result()
                self.before = there(address).keys()
                shutil.rmtree(trainer.default_root_dir)

    deletes = Deletes()
    with pytest.raises(FailedWrite, match="was deleted during the training"):
        train(9, deletes, mirror=mirror, every_n_train_steps=1, keep_last=2)
    assert "checkpoints/step-00000003.ckpt" in deletes.before
    assert there(address).keys() >= deletes.before


def test_a_refused_run_copies_nothing(train, address, tiny_gan, random_images, fit, tmp_path):
    train(2, mirror=Mirror(f"{address}/other"))
    with pytest.raises(RefusedInput, match="has the checkpoints of another run"):
        train(2, mirror=Mirror(address))
    assert not [name for name in Remote(address).files() if not name.startswith("other/")]
