"""Files at addresses of fsspec, here in memory: what arrives is whole, what is downloaded is what a run needs."""

import io

import fsspec
import pytest
import torch

from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.checkpoints.locate import find_checkpoint, resume_point
from lit_gans.checkpoints.remote import Remote
from lit_gans.common.errors import RefusedInput

ADDRESSES = {"memory": "memory://bucket/{}", "file": "file://{}/there"}


@pytest.fixture(params=ADDRESSES)
def remote(request, tmp_path):
    """A folder without files, at an address of each kind."""
    address = ADDRESSES[request.param].format(tmp_path if request.param == "file" else tmp_path.name)
    yield Remote(address)
    Remote(address).remove()


class Broken(io.BytesIO):
    """A file of which half can be read."""

    def read(self, size=-1):
        if self.tell():
            raise OSError(5, "Input/output error")
        return super().read(3)


def test_what_is_written_is_there_and_what_is_removed_is_not(remote):
    assert remote.files() == []
    for name in ("a.txt", "inner/b.txt", "inner/deep/c.txt"):
        remote.write(name, io.BytesIO(name.encode()))
    assert remote.files() == ["a.txt", "inner/b.txt", "inner/deep/c.txt"]
    remote.remove("inner/deep")
    remote.remove("no/such/file")
    assert remote.files() == ["a.txt", "inner/b.txt"]


def test_a_file_that_arrives_in_part_leaves_the_earlier_one(remote, tmp_path):
    remote.write("a.txt", io.BytesIO(b"before"))
    with pytest.raises(OSError, match="Input/output error"):
        remote.write("a.txt", Broken(b"after it"))
    assert (remote.download(tmp_path / "here") / "a.txt").read_bytes() == b"before"
    assert remote.files() == ["a.txt"]


def test_a_run_is_downloaded_without_its_numbered_checkpoints(remote, tmp_path):
    kept = ["config.yaml", "checkpoints/best.ckpt", "checkpoints/last.ckpt/commit.json", "samples/000000.png"]
    numbered = ["checkpoints/step-00000002.ckpt", "checkpoints/best-00000002.ckpt/commit.json"]
    for name in kept + numbered:
        remote.write(name, io.BytesIO(name.encode()))
    folder = remote.download(tmp_path / "here")
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == set(kept)
    assert (folder / kept[2]).read_text() == kept[2]


def test_checkpoints_are_found_and_read_at_addresses(tiny_gan, random_images, fit, tmp_path, monkeypatch):
    address = f"memory://bucket/{tmp_path.name}/run"
    trainer = fit(tiny_gan(), random_images(), max_steps=1)
    trainer.save_checkpoint(f"{address}/checkpoints/last.ckpt")
    expected = trainer.model.state_dict()
    for path in (address, f"{address}/checkpoints/last.ckpt"):
        (tmp_path / "temporary").mkdir(exist_ok=True)
        with monkeypatch.context() as patch:
            patch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
            torch.testing.assert_close(read_checkpoint(path)["state_dict"], expected, rtol=0, atol=0)
            assert not [*(tmp_path / "temporary").iterdir()]
        assert find_checkpoint(path).name == "last.ckpt"
    trainer = fit(tiny_gan(), random_images(), max_steps=2, resume=f"{address}/checkpoints/last.ckpt")
    assert trainer.global_step == 2


def test_numbered_checkpoints_are_found_by_their_own_address(tmp_path):
    remote = Remote(f"memory://bucket/{tmp_path.name}/checkpoints")
    torch.save({"state_dict": {}, "global_step": 2}, buffer := io.BytesIO())
    buffer.seek(0)
    remote.write("step-00000002.ckpt", buffer)
    assert read_checkpoint(f"{remote.address}/step-00000002.ckpt")["global_step"] == 2


def test_a_damaged_file_at_an_address_is_refused(tmp_path):
    address = f"memory://bucket/{tmp_path.name}/last.ckpt"
    with fsspec.open(address, "wb") as file:
        file.write(b"not a checkpoint")
    with pytest.raises(RefusedInput, match=r"last.ckpt cannot be read as a checkpoint: it was not written by torch"):
        read_checkpoint(address)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("memory://bucket/nothing", "there is no file or folder at memory://bucket/nothing"),
        ("s4://bucket/run", "s4://bucket/run cannot be used: Protocol not known: s4"),
    ],
)
def test_addresses_without_a_checkpoint_are_refused(path, why):
    with pytest.raises(RefusedInput, match=why):
        find_checkpoint(path)


def test_the_options_that_resume_a_run_at_a_url_are_named(tmp_path):
    with pytest.raises(RefusedInput, match=r"is a URL: use hydra\.run.dir=URL resume=auto to continue the run"):
        resume_point("memory://bucket/run", tmp_path)


@pytest.mark.slow
def test_an_object_store(tmp_path, monkeypatch):
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    server = moto.ThreadedMotoServer(port=0)
    server.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*server.get_host_and_port()))
    fsspec.filesystem("s3").mkdir("bucket")
    remote = Remote("s3://bucket/run")
    remote.write("checkpoints/last.ckpt", io.BytesIO(b"before"))
    with pytest.raises(OSError, match="Input/output error"):
        remote.write("checkpoints/last.ckpt", Broken(b"after it"))
    assert (remote.download(tmp_path / "run") / "checkpoints" / "last.ckpt").read_bytes() == b"before"
    server.stop()
