"""Files and folders that take the place of others: complete at every moment, also where a process is killed."""

from pathlib import Path

import pytest

from lit_gans.common.atomic import kept, remove, replace
from lit_gans.config.run_folder import LAST, newest_run, resume_path

KINDS = ("file", "folder")


def make(kind, path, content):
    """Writes a file, or a folder of two files, one of them named after its content."""
    if kind == "file":
        path.write_text(content)
        return
    path.mkdir()
    for name in ("rest.pt", f"{content}.distcp"):
        (path / name).write_text(content)


def content(path):
    """What `make` wrote, and nothing else."""
    if path.is_file():
        return "file", path.read_text()
    names = sorted(entry.name for entry in path.iterdir())
    text = (path / "rest.pt").read_text()
    assert names == sorted(["rest.pt", f"{text}.distcp"])
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
def test_the_new_one_takes_the_place_and_nothing_stays_beside_it(place, old, new):
    if old:
        make(old, place, "old")
    part = place.with_name("last.ckpt.part")
    make(new, part, "new")
    replace(part, place)
    assert content(place) == (new, "new")
    assert kept(place) == place
    assert [*place.parent.iterdir()] == [place]


@pytest.mark.parametrize(
    ("old", "new", "number"),
    [
        ("file", "file", 1),  # there is no second renaming
        *((old, new, number) for old in KINDS for new in KINDS if "folder" in (old, new) for number in (1, 2)),
    ],
)
def test_a_process_that_is_killed_leaves_the_old_one(place, killed_at, monkeypatch, old, new, number):
    make(old, place, "old")
    part = place.with_name("last.ckpt.part")
    make(new, part, "new")
    killed_at(number)
    with pytest.raises(KeyboardInterrupt):
        replace(part, place)
    monkeypatch.undo()
    found = kept(place)
    assert content(found) == (old, "old")
    assert found == (place if number == 1 else place.with_name("last.ckpt.old"))
    run = place.parent.parent
    (run.parent / "version_4").mkdir()  # newer, without a checkpoint
    assert newest_run(run.parent) == run
    assert resume_path("auto", run) == found
    # the run goes on, and the next checkpoint takes the place of all that is there
    remove(part)
    make(new, part, "newer")
    replace(part, place)
    assert content(kept(place)) == (new, "newer")
    assert [*place.parent.iterdir()] == [place]


def test_a_second_kill_leaves_the_old_one_too(place, killed_at, monkeypatch):
    """No checkpoint has the name then: the only one must not be removed before the new one exists."""
    for kind in KINDS:
        make(kind, place.with_name("last.ckpt.old"), "old")
        part = place.with_name("last.ckpt.part")
        make(kind, part, "new")
        killed_at(1)
        with pytest.raises(KeyboardInterrupt):
            replace(part, place)
        monkeypatch.undo()
        assert content(kept(place)) == (kind, "old")
        remove(part)
        remove(place.with_name("last.ckpt.old"))


def test_an_old_one_that_was_not_yet_removed_does_not_count(place):
    make("folder", place, "new")
    make("folder", place.with_name("last.ckpt.old"), "old")
    assert kept(place) == place
    part = place.with_name("last.ckpt.part")
    make("file", part, "newer")
    replace(part, place)
    assert content(place) == ("file", "newer")
    assert [*place.parent.iterdir()] == [place]


def test_nothing_is_kept_where_nothing_was(place):
    assert kept(place) is None
    assert resume_path("auto", place.parent.parent) is None
    remove(place)
