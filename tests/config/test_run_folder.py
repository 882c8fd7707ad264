"""The folder of a run: its number, the newest one, and what SLURM calls it."""

import ntpath
import os
from pathlib import Path

import pytest
import torch
import yaml
from omegaconf import OmegaConf

from lit_gans import compose
from lit_gans.checkpoints.locate import resume_point
from lit_gans.common.errors import RefusedInput
from lit_gans.config.run_folder import (
    LAST,
    data_origins,
    existing_folders,
    newest_run,
    own_folder,
    run_folder,
    run_name,
    sweep_folder,
)

PARENT = Path("outputs/dcgan_digits")
DIGITS = {"model": "dcgan", "data": "digits"}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in {name for name in os.environ if name.startswith("SLURM_")} | {"TORCHELASTIC_USE_AGENT_STORE"}:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def slurm(monkeypatch):
    """What srun tells a process of a step of a job."""

    def tell(job, **more):
        given = {"PROCID": "0", "NTASKS": "2", "JOB_ID": str(job), **more}
        for name, value in given.items():
            monkeypatch.setenv(f"SLURM_{name}", value)

    return tell


def named(experiment=None, model="dcgan", data="digits", origins=()):
    return run_name({"experiment": experiment, "model": model, "data": data}, DIGITS, origins)


def folder(resume="none", experiment=None):
    return run_folder(named(experiment), resume)


def trained(version, name=LAST):
    """Leaves a checkpoint in a version's folder."""
    path = PARENT / version / name
    path.parent.mkdir(parents=True)
    settings = dict.fromkeys(("model", "data", "trainer", "resume", "init_from"))
    (PARENT / version / "config.yaml").write_text(yaml.safe_dump(settings))
    torch.save({"state_dict": {}, "global_step": 3, "optimizer_states": []}, path)
    return path


def test_each_run_claims_the_next_number():
    assert [folder() for _ in range(3)] == [PARENT / f"version_{number}" for number in range(3)]
    assert (PARENT / "version_2").is_dir(), "a second process must find it taken"
    trained("version_10")
    trained("version_9")
    for name in ("version_old", "version_", "version_30 (copy)", "notes"):
        (PARENT / name).mkdir()
    assert folder() == PARENT / "version_11"
    assert folder(experiment="mine") == Path("outputs/mine/version_0")
    assert sweep_folder() == Path("outputs/sweeps/version_0")


def test_a_folder_that_another_run_claims_meanwhile_is_left_to_it(monkeypatch):
    mkdir, lost = Path.mkdir, []

    def late(path, *args, **kwargs):
        if path.name == "version_0" and not lost:
            lost.append(path)
            mkdir(path, parents=True)
        mkdir(path, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", late)
    assert folder() == PARENT / "version_1"


def test_auto_takes_the_highest_number_with_a_checkpoint():
    assert newest_run(PARENT) is None
    assert folder("auto") == PARENT / "version_0", "the first run"
    assert folder("auto") == PARENT / "version_1", "version_0 has no checkpoint"
    for version in ("version_9", "version_10"):
        trained(version)
    (PARENT / "version_12" / LAST.parent).mkdir(parents=True)
    assert newest_run(PARENT) == folder("auto") == PARENT / "version_10"
    assert resume_point("auto", PARENT / "version_10") == (PARENT / "version_10" / LAST, 3)
    assert resume_point("auto", PARENT / "version_12") == (None, 0)
    best = trained("version_11", LAST.with_name("best.ckpt"))
    assert newest_run(PARENT) == folder("auto") == PARENT / "version_11", "killed before its first last checkpoint"
    assert resume_point("auto", PARENT / "version_11") == (best, 3)


def test_a_named_checkpoint_of_a_run_resumes_in_its_folder():
    path = trained("version_3")
    assert folder(str(path)) == PARENT / "version_3"
    assert resume_point(str(path), Path("elsewhere")) == (path, 3)
    (PARENT / "version_3/config.yaml").write_text("mine: 1")
    assert folder(str(path)) == PARENT / "version_4", "the folder of another project"
    path.with_name("last.ckpt").rename("loose.ckpt")
    assert folder("loose.ckpt") == PARENT / "version_5"
    assert resume_point("none", PARENT / "version_3") == (None, 0)
    with pytest.raises(RefusedInput, match=r"resume=missing\.ckpt: there is no such checkpoint"):
        resume_point("missing.ckpt", PARENT)


def test_under_slurm_the_job_is_the_number(slurm):
    slurm(4711)
    assert folder() == folder() == PARENT / "version_4711", "the same on every process, which share no store"
    slurm(4711, STEP_ID="0")
    assert folder() == PARENT / "version_4711"
    slurm(4711, STEP_ID="2")
    assert folder() == PARENT / "version_4711.2"
    assert sweep_folder() == Path("outputs/sweeps/version_4711.2")


def test_runs_of_one_process_or_of_a_shell_count_as_anywhere(slurm, monkeypatch):
    slurm(4711, JOB_NAME="bash")
    assert folder() == PARENT / "version_0"
    slurm(4711, NTASKS="1", JOB_NAME="mine")
    assert folder() == PARENT / "version_1"
    slurm(4711)
    monkeypatch.delenv("SLURM_PROCID")  # srun started no process
    assert folder() == PARENT / "version_2"


def test_auto_orders_jobs_and_their_steps_by_number(slurm):
    order = ["version_5", "version_999", "version_4711", "version_4711.2", "version_4711.10", "version_10000"]
    for version in sorted(order):
        (PARENT / version).mkdir(parents=True)
    slurm(20000)
    assert folder("auto") == PARENT / "version_20000", "none has a checkpoint"
    for version in order:
        trained_there = trained(version)
        assert folder("auto") == PARENT / version
        assert resume_point("auto", folder("auto")) == (trained_there, 3)
    assert folder() == PARENT / "version_20000"


def test_another_folder_of_images_is_another_name():
    Path("a/photos").mkdir(parents=True)
    Path("b/photos").mkdir(parents=True)
    places = ("a/photos", "b/photos", "s3://bucket/é, photos")
    names = [named(data="folder", origins=[origin]) for origin in places]
    assert len({*names}) == 3
    assert names[0] == named(data="folder", origins=[str(Path("a/photos").absolute())]), "however it is typed"
    assert {name.rpartition("-")[0] for name in names} == {"dcgan_folder_photos"}
    assert named("mine", data="folder", origins=["a/photos"]).startswith("mine_folder_photos-")


def test_a_folder_on_windows_is_named_by_the_last_part_of_its_path(monkeypatch):
    monkeypatch.setattr(os.path, "basename", ntpath.basename)
    name = named(data="folder", origins=["C:\\Users\\me\\photos"])
    assert name.rpartition("-")[0] == "dcgan_folder_photos"


def test_another_model_or_data_than_that_of_an_experiment_is_another_name():
    assert named("mine") == "mine"
    assert named("mine", model="gan") == "mine_gan"
    assert named("mine", model="gan", data="emoji") == "mine_gan_emoji"


def origins(*overrides):
    return data_origins(OmegaConf.to_container(compose(*overrides).data, resolve=True))


@pytest.mark.runs
@pytest.mark.parametrize(
    "others",
    [
        ("data=lsun", "data.category=church_outdoor"),
        ("data=mnist", "data.split=test", "data.root=elsewhere"),
        ("data=huggingface data.name=a/b", "data.split=test", "data.files=a.tar", "data.revision=v2"),
    ],
)
def test_other_data_of_one_source_is_another_name(others):
    first, *choices = others
    default = first.split()
    names = [named(origins=origins(*default, *choice)) for choice in [(), *([c] for c in choices)]]
    assert len({*names}) == 1 + len(choices)
    processing = ["data.cache=elsewhere", "data.crop=none", "data.placement=disk"]
    for item in processing if first.startswith("data=lsun") else []:
        assert origins(*default, item) == origins(*default), item
    assert len(origins(*default)) == len(default) - 1, "defaults add nothing"


def test_a_root_is_the_same_name_before_and_after_its_download():
    before = named(origins=origins("data=mnist", "data.root=data/mnist"))
    Path("data/mnist").mkdir(parents=True)
    assert before == named(origins=origins("data=mnist", "data.root=./data/mnist"))


def test_a_name_has_a_length_that_file_systems_allow_and_stays_unique():
    long = [f"/data/{'é' * 120}/{'photos' * 40}{number}" for number in range(2)]
    names = [named(origins=[origin]) for origin in long] + [named("my_experiment" * 20), named("my_experiment" * 21)]
    assert len(set(names)) == 4
    for name in names:
        assert len(os.fsencode(name)) <= 220
        Path(name).mkdir()


@pytest.mark.parametrize("begun", [True, False])
def test_a_refused_run_leaves_no_files_of_loggers(tmp_path, begun):
    folder = tmp_path / "outputs/version_0"

    def run():
        with own_folder(folder, existing_folders([tmp_path])):
            (folder / "tensorboard").mkdir()
            (folder / "tensorboard/events").touch()
            if begun:
                (folder / "config.yaml").touch()
            raise RefusedInput

    with pytest.raises(RefusedInput):
        run()
    assert (folder / "tensorboard/events").exists() is begun
    assert (tmp_path / "outputs").exists() is begun
