"""Files and folders that take the place of others: complete at every moment, also where a process is killed."""

import errno
import os
from pathlib import Path

import pytest

from lit_gans.checkpoints.locate import checkpoints_of
from lit_gans.common.atomic import duplicate, kept, remove, replace, replacing, sweep
from lit_gans.config.run_folder import LAST, newest_run

KINDS = ("file", "folder")


def make(kind, path, content):
    """Writes a file, or a folder of two files, one of them named after its content."""
    if kind == "file":
        path.write_text(content)
        return
    path.mkdir()
    for name in ("rest.pt", f"{content}.safetensors"):
        (path / name).write_text(content)


def content(path):
    """What `make` wrote, and nothing else."""
    if path.is_file():
        return "file", path.read_text()
    names = sorted(entry.name for entry in path.iterdir())
    text = (path / "rest.pt").read_text()
    assert names == sorted(["rest.pt", f"{text}.safetensors"])
    return "folder", text


@pytest.fixture
def place(tmp_path):
    """The path of the last checkpoint of a run."""
    path = tmp_path / "version_3" / LAST
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def killed_at(monkeypatch):
    """Lets the process end in the renaming with this number, before it is done."""

    def end(number):
        renamings = []

        def counted(rename):
            def renamed(path, target):
                renamings.append(path)
                if len(renamings) == number:
                    raise KeyboardInterrupt
                return rename(path, target)

            return renamed

        for name in ("rename", "replace"):
            monkeypatch.setattr(Path, name, counted(getattr(Path, name)))

    yield end
    monkeypatch.undo()


@pytest.mark.parametrize("new", KINDS)
@pytest.mark.parametrize("old", [*KINDS, None])
@pytest.mark.parametrize("left", [*KINDS, None])  # by a replacement that was killed before its end
def test_the_new_one_takes_the_place_and_nothing_stays_beside_it(place, left, old, new):
    assert kept(place) is None
    if old:
        make(old, place, "old")
    if left:
        make(left, place.with_name("last.ckpt.lit_gans_old"), "older")
        assert content(kept(place)) == ((old, "old") if old else (left, "older"))
    part = place.with_name("last.ckpt.lit_gans_part")
    make(new, part, "new")
    replace(part, place)
    assert content(place) == (new, "new")
    assert kept(place) == place
    assert [*place.parent.iterdir()] == [place]


@pytest.mark.parametrize(
    ("old", "new", "number", "name"),
    [
        ("file", "file", 1, LAST.name),  # there is no second renaming
        *((old, new, n, LAST.name) for old in KINDS for new in KINDS if "folder" in (old, new) for n in (1, 2)),
        *(
            (kind, kind, 1, "last.ckpt.lit_gans_old") for kind in KINDS
        ),  # a second kill: no checkpoint has the name then
    ],
)
def test_a_process_that_is_killed_leaves_the_old_one(place, killed_at, monkeypatch, old, new, number, name):
    make(old, place.with_name(name), "old")
    part = place.with_name("last.ckpt.lit_gans_part")
    make(new, part, "new")
    killed_at(number)
    with pytest.raises(KeyboardInterrupt):
        replace(part, place)
    monkeypatch.undo()
    found = kept(place)
    assert content(found) == (old, "old")
    assert found == place.with_name(name if number == 1 else "last.ckpt.lit_gans_old")
    run = place.parent.parent
    (run.parent / "version_4").mkdir()  # newer, without a checkpoint
    assert newest_run(run.parent) == run
    assert found in checkpoints_of(run)
    # the run goes on, and the next checkpoint takes the place of all that is there
    remove(part)
    make(new, part, "newer")
    replace(part, place)
    assert content(kept(place)) == (new, "newer")
    assert [*place.parent.iterdir()] == [place]


@pytest.mark.parametrize("kind", KINDS)
def test_the_content_is_on_disk_before_it_has_its_name_and_the_name_at_the_end(place, monkeypatch, kind):
    """A machine that loses power must not find a name without its content."""
    events = []

    def recorded(name, original, describe):
        def call(*arguments):
            events.append((name, describe(arguments[0])))
            return original(*arguments)

        return call

    def name_of(descriptor):
        return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name

    monkeypatch.setattr(os, "fsync", recorded("fsync", os.fsync, name_of))
    for rename in ("rename", "replace"):
        monkeypatch.setattr(Path, rename, recorded("rename", getattr(Path, rename), lambda path: path.name))
    with replacing(place) as part:
        make(kind, part, "new")
    inside = {"file": [], "folder": ["new.safetensors", "rest.pt"]}[kind]
    assert sorted(events[: len(inside)]) == [("fsync", name) for name in inside]
    assert events[len(inside) :] == [
        ("fsync", "last.ckpt.lit_gans_part"),
        ("rename", "last.ckpt.lit_gans_part"),
        ("fsync", "checkpoints"),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_what_killed_processes_left_is_swept(place, kind):
    beside = place.with_name("best.ckpt")
    make(kind, place.with_name("last.ckpt.lit_gans_part"), "half")
    make(kind, place.with_name("last.ckpt.lit_gans_old"), "old")  # killed between two renames
    make(kind, beside, "new")
    make(kind, place.with_name("best.ckpt.lit_gans_old"), "old")
    make("file", place.with_name("notes.part"), "mine")
    sweep(place.parent, "*.ckpt")
    assert sorted(path.name for path in place.parent.iterdir()) == ["best.ckpt", "last.ckpt", "notes.part"]
    assert content(place) == (kind, "old")
    assert content(beside) == (kind, "new")


def test_files_of_other_names_stay(place):
    others = [place.with_name(f"{name}{end}") for name in (place.name, "mine.ckpt") for end in (".old", ".part")]
    for path in (place, *others):
        path.write_text(path.name)
    with replacing(place) as part:
        part.write_text("new")
    sweep(place.parent, "*.ckpt")
    assert place.read_text() == "new"
    assert all(path.read_text() == path.name for path in others)


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_duplicate_outlives_the_replacement_of_the_first(place, monkeypatch, kind, links):
    if not links:

        def refuse(*_):
            raise OSError(errno.EPERM, "no hard links here")

        monkeypatch.setattr(os, "link", refuse)
    other = place.with_name("step.ckpt")
    make(kind, place, "old")
    duplicate(place, other)
    duplicate(place, other)
    assert sorted(place.parent.iterdir()) == [place, other], "also where it had the second name already"
    file = other if kind == "file" else other / "rest.pt"
    assert file.stat().st_nlink == (2 if links else 1)
    with replacing(place) as part:
        make(kind, part, "new")
    assert content(other) == (kind, "old")
    assert content(place) == (kind, "new")
    assert sorted(place.parent.iterdir()) == [place, other]
