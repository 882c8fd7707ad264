"""A disk that is full, read-only or gone: one sentence, what was complete stays, and nothing partial has a name."""

import resource
import shutil
import subprocess
from contextlib import contextmanager, nullcontext, suppress

import numpy as np
import pytest
import torch
import yaml
from lightning.pytorch.callbacks import LambdaCallback
from PIL import Image

from lit_gans.callbacks import RunCheckpoint, Samples
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.cli.commands.train import _resolved
from lit_gans.cli.outcome import failures_printed
from lit_gans.common.errors import FailedWrite, RefusedInput
from lit_gans.data.sources.folder import Folder

from .killed_saves import save_file, save_folder

# ---- disks: a small tmpfs where root may mount one, and limits of the size of files


@contextmanager
def mounted(folder, kilobytes):
    """Mounts a small file system on a folder until the end; skips the test where that is not permitted."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a file system can only be mounted by root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], capture_output=True)


def remount(folder, option):
    """Changes a mounted file system, for example `ro` or `size=900k`."""
    subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=True)


@contextmanager
def filled(folder):
    """Fills the disk of a folder, and makes room at the end."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1024)):
            pass
    try:
        yield
    finally:
        ballast.unlink(missing_ok=True)


@contextmanager
def limited(num_bytes):
    """Lets this process write no larger files: what a full disk is without being root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def small(tmp_path):
    """A folder on a disk of its own, for one checkpoint of `killed_saves` and a half."""
    with mounted(tmp_path / "small", 760) as folder:
        yield folder


@pytest.mark.parametrize("save", [save_file, save_folder])
@pytest.mark.parametrize("why", ["No space left on device", "it was only written in part"])
def test_a_checkpoint_that_does_not_fit_leaves_the_previous_one(request, tmp_path, save, why):
    folder = request.getfixturevalue("small") if why.startswith("No space") else tmp_path
    path = folder / "last.ckpt"
    save(1, path)
    with (
        nullcontext() if why.startswith("No space") else limited(100_000),
        pytest.raises(FailedWrite, match=rf"last.ckpt cannot be written: {why}\. Files that were complete"),
    ):
        save(2, path)
    assert read_checkpoint(path)["global_step"] == 1
    assert [*folder.iterdir()] == [path]


def test_packing_without_room_is_an_error_and_continues_with_room(tmp_path, small):
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for number in range(300):
        Image.fromarray(np.full((32, 32, 3), number % 256, np.uint8)).save(pictures / f"{number:03d}.png")
    data = Folder(root=str(pictures), image_size=32, cache=str(small))
    with pytest.raises(RefusedInput, match=r"\(No space left on device\): choose another data.cache"):
        data.prepare_data()
    assert not data.packed_path.exists()
    remount(small, "size=4m")
    again = Folder(root=str(pictures), image_size=32, cache=str(small))
    again.packed.verify()
    assert again.packed.images[:, 0, 0, 0].tolist() == [number % 256 for number in range(300)]
    assert not [*small.glob("*.part")]


def test_a_cache_that_others_filled_and_data_that_nobody_may_write_are_read(tmp_path, small):
    """Of the cache only what is missing is written; of a folder of images nothing."""
    pictures = tmp_path / "pictures"
    with mounted(pictures, 500):
        for number in range(8):
            Image.fromarray(np.full((8, 8, 3), 30 * number, np.uint8)).save(pictures / f"{number}.png")
        remount(pictures, "ro")
        Folder(root=str(pictures), image_size=8, cache=str(small)).prepare_data()
        with filled(small):
            again = Folder(root=str(pictures), image_size=8, cache=str(small))
            assert again.packed.images[:, 0, 0, 0].tolist() == [30 * number for number in range(8)]
        remount(small, "ro")
        Folder(root=str(pictures), image_size=8, cache=str(small)).packed.verify()
        with pytest.raises(RefusedInput, match=r"\(Read-only file system\): choose another data.cache"):
            Folder(root=str(pictures), image_size=32, cache=str(small)).prepare_data()


def log_many(log):
    for step in range(6, 5000):
        log.log_metrics({"loss/generator": step}, step)


def test_lines_of_metrics_that_do_not_fit_are_dropped_by_a_resumed_run(small):
    log = CSVMetrics(str(small))
    for step in range(1, 6):
        log.log_metrics({"loss/generator": step}, step)
    sentence = r"metrics.csv cannot be written: No space left on device"
    with filled(small), pytest.raises(FailedWrite, match=sentence):
        log_many(log)
    again = CSVMetrics(str(small))
    again.resume_at(4)
    again.log_metrics({"loss/generator": 4.0}, 4)
    lines = (small / "metrics.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["step", "1", "2", "3", "4"]


@pytest.fixture
def ended(tiny_gan, random_images, fit, tmp_path):
    """Trains in `tmp_path` on a small disk, with which something happens before the fourth iteration."""

    def run(work, sentence, *others):
        checkpoint = RunCheckpoint(every_n_train_steps=2)
        at_3 = LambdaCallback(on_train_batch_start=lambda trainer, *_: trainer.global_step == 3 and work())
        with pytest.raises(FailedWrite, match=sentence):
            fit(
                tiny_gan("gan", image_size=16),
                random_images(),
                9,
                callbacks=[*others, at_3, checkpoint],
                enable_checkpointing=True,
            )
        return torch.load(tmp_path / "checkpoints/last.ckpt", weights_only=True)["global_step"]

    with mounted(tmp_path, 4000):
        yield run


@pytest.mark.parametrize("why", ["No space left on device", "Read-only file system"])
def test_a_training_whose_disk_cannot_be_written_keeps_its_last_checkpoint(ended, tmp_path, why):
    full = filled(tmp_path)  # until the end of the test
    work = full.__enter__ if why.startswith("No space") else lambda: remount(tmp_path, "ro")
    assert ended(work, rf"last.ckpt cannot be written: {why}") == 2
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["last.ckpt"]


def test_samples_that_do_not_fit_leave_no_partial_image(ended, tmp_path):
    full, samples = filled(tmp_path), Samples(every_n_steps=1, num=36)
    assert ended(full.__enter__, r"000004.png cannot be written: No space left", samples) == 2
    assert sorted(path.name for path in (tmp_path / "samples").iterdir()) == [f"00000{n}.png" for n in range(4)]
    for path in (tmp_path / "samples").iterdir():
        Image.open(path).load()


def test_a_deleted_folder_gets_the_last_checkpoint_once_more_and_ends_the_training(ended, tmp_path):
    def work():
        shutil.rmtree(tmp_path / "checkpoints")

    assert ended(work, r"checkpoints was deleted during.*last.ckpt was written again\.") == 4


def test_on_the_command_line_it_is_a_sentence(capsys):
    with failures_printed():
        raise FailedWrite("last.ckpt cannot be written: No space left on device.")
    problem = "last.ckpt cannot be written: No space left on device."
    assert capsys.readouterr().err == f"lit-gans: {problem} resume=auto continues from the last checkpoint.\n"


def test_a_disk_without_room_for_the_configuration_of_further_processes_is_an_error():
    config = {"name": "x" * 5_000}
    with limited(2_000), pytest.raises(FailedWrite, match=r"resolved\.yaml cannot be written: File too large"):
        _resolved(config).__enter__()
    with _resolved(config) as file:
        assert yaml.safe_load(file.read_text()) == config
    assert not file.parent.exists()
