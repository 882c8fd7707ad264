"""`lit-gans plan` and `experiment=photos`: what is chosen, kept, said and trained."""

import os
import re
import shutil
from itertools import count
from pathlib import Path

import pytest
import torch
import yaml
from torchvision.utils import save_image

from lit_gans.cli.commands import plan as planning
from lit_gans.cli.timing import Timing, _Clock, busy_machine
from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import as_size
from lit_gans.config.build import build
from lit_gans.config.hydra_app import compose
from lit_gans.data.survey import Survey


@pytest.fixture
def photos(tmp_path):
    (tmp_path / "photos").mkdir()
    for index, image in enumerate(torch.rand(40, 3, 40, 60, generator=torch.Generator().manual_seed(0))):
        save_image(image, tmp_path / "photos" / f"{index:02d}.png")
    return "data.root=photos"


@pytest.fixture
def speeds(monkeypatch, request):
    """A device that takes 20 ms for an image of 32 pixels at a width of 32; what it timed."""
    timed, computing = [], getattr(request, "param", 1.0)

    def speed(config, seconds, images):
        assert (images.image_size, images.channels) == (
            as_size(config["data"]["image_size"]),
            config["data"]["channels"],
        )
        height, width = images.dataset.images.shape[-2:]
        timed.append((height, width, config["model"]["generator_width"]))
        per_image = 0.02 * height * width / (32 * 32) * config["model"]["generator_width"] / 32
        return Timing([per_image], 1, None, computing)

    monkeypatch.setattr(planning, "speed", speed)
    return timed


def test_a_plan_is_an_experiment_for_the_images_and_the_time(ran, photos, speeds):
    out = ran("plan", photos, "minutes=20", "metrics=none")
    lines = out.splitlines()
    assert lines[0] == "40 color images of 60x40 pixels (width x height, medians), cpu"
    assert "fewer than 500 images" in lines[1]
    assert [line.split()[0] for line in lines[2:7]] == ["images", "networks", "learning", "duration", "evaluation"]
    assert "32 high and 48 wide, cropped to the center" in lines[2]
    assert lines[2].endswith(" data.flip="), "images are not flipped by default"
    assert speeds == [(32, 48, 32)], "pictures of 40 pixels are not enlarged to 64"

    written = yaml.safe_load(Path("planned/experiment/plan_photos.yaml").read_text())
    assert written["defaults"] == ["photos", {"override /data": "folder"}, {"override /metrics": "none"}, "_self_"]
    assert written["data"] == {"root": "photos", "channels": 3, "image_size": [32, 48], "batch_size": 32}
    steps = written["trainer"]["max_steps"]
    assert steps == pytest.approx(0.85 * 1200 / (32 * 0.02 * 1.5), rel=0.1)
    assert f"{steps:,} iterations" in lines[5]
    assert f"about {steps * 32 * 0.02 * 1.5 / 0.95 / 60:.0f} min" in lines[5]
    assert out.rstrip().endswith("lit-gans train experiment=planned/experiment/plan_photos.yaml")


def test_what_is_given_is_kept(ran, photos, speeds):
    given = ["data.image_size=16", "model.generator_width=4", "model.discriminator_width=4", "trainer.max_steps=3"]
    given += ["data.batch_size=8", "data.crop=none"]
    out = ran("plan", photos, "metrics=none", *given, "output=experiment/own.yaml")
    assert "16x16, data.crop=none " in out
    written = yaml.safe_load(Path("experiment/own.yaml").read_text())
    assert (written["data"]["image_size"], written["data"]["batch_size"]) == (16, 8)
    assert written["model"] == {"generator_width": 4, "discriminator_width": 4, "r1_gamma": 0.0064}
    assert written["trainer"] == {"max_steps": 3}
    assert speeds == [(16, 16, 4)]


def test_a_folder_of_any_name_is_planned_and_an_iteration_takes_all_its_microbatches(ran, photos, speeds):
    Path("photos").rename("a #1: b, c")
    more = ["model.generator_optimizer.betas=[0.0, 0.9]", "model.accumulate_gradients=4"]
    ran("plan", "data.root=a #1: b, c", "minutes=20", "metrics=none", *more)
    written = yaml.safe_load(Path("planned/experiment/plan_a_1_b_c.yaml").read_text())
    assert written["data"]["root"] == "a #1: b, c"
    assert written["model"]["generator_optimizer"] == {"betas": [0.0, 0.9]}
    assert written["trainer"]["max_steps"] == pytest.approx(0.85 * 1200 / (4 * 32 * 0.02 * 1.5), rel=0.1)


def test_another_gan_keeps_its_settings(ran, photos, speeds):
    ran("plan", photos, "metrics=none", "model=r3gan", "minutes=1")
    written = yaml.safe_load(Path("planned/experiment/plan_photos.yaml").read_text())
    assert written["defaults"][0] == "r3gan_digits"
    assert written["model"]["r1_gamma"]["start"] == pytest.approx(2 * (32 * 48 / 64**2) ** 1.56, rel=0.05)


@pytest.mark.runs
@pytest.mark.parametrize(
    "given",
    [["callbacks.ema=null"], ["callbacks.samples=null"], ["callbacks=none"], ["model=r3gan", "model.r1_gamma=0.2"]],
)
def test_no_key_is_written_below_a_node_that_does_not_exist(ran, photos, speeds, given):
    """It was a TypeError after everything was timed, or a plan that could not be trained."""
    ran("plan", photos, "metrics=none", "minutes=1", *given)
    build(compose("experiment=planned/experiment/plan_photos.yaml"))


@pytest.mark.runs
def test_a_plan_keeps_the_file_of_one_that_was_made_meanwhile(ran, photos, speeds, monkeypatch):
    chosen = planning._chosen

    def with_another(*arguments):
        yield from chosen(*arguments)
        Path("planned/experiment/plan_photos.yaml").write_text("of another plan")

    monkeypatch.setattr(planning, "_chosen", with_another)
    assert "written:   planned/experiment/plan_photos_2.yaml" in ran("plan", photos, "minutes=20", "metrics=none")
    assert Path("planned/experiment/plan_photos.yaml").read_text() == "of another plan"
    Path("planned/experiment/plan_photos_3.yaml").touch()  # by a plan that is being written
    assert planning._plan_to_resume({"data.root": "photos"}).name == "plan_photos_2.yaml"
    with Path("planned/experiment/plan_photos_2.yaml").open() as before:
        ran("plan", photos, "minutes=20", "metrics=none", "output=planned/experiment/plan_photos_2.yaml")
        assert os.fstat(before.fileno()).st_nlink == 0, "it is replaced as a whole"


@pytest.mark.runs
def test_unreadable_images_are_listed_before_anything_is_timed(ran, refused, photos, speeds):
    for name in ("broken.png", "another.jpg"):
        Path("photos", name).write_bytes(b"no picture")
    err = refused("plan", photos, "metrics=none", "minutes=1")
    assert "2 of 42 images that were opened cannot be read; data.on_error=skip leaves out such images:" in err
    for name in ("broken.png", "another.jpg"):
        assert f"    photos/{name} cannot be read as an image: " in err
    assert not Path("planned/experiment/plan_photos.yaml").exists()
    out = ran("plan", photos, "metrics=none", "minutes=1", "data.on_error=skip")
    assert "2 of 42 images that were opened cannot be read, and are left out (data.on_error=skip):" in out
    written = Path("planned/experiment/plan_photos.yaml").read_text()
    assert "#     photos/broken.png cannot be read as an image" in written
    assert yaml.safe_load(written)["data"]["on_error"] == "skip"


@pytest.mark.runs
@pytest.mark.parametrize("first", [["experiment=photos"], ["data=folder"]])
def test_training_begins_with_a_plan(train, photos, first, monkeypatch):
    monkeypatch.setattr(planning, "_TRIAL", 0.05)
    small = ["data.image_size=16", "model.generator_width=4", "model.discriminator_width=4", "metrics=none"]
    assert train(*first, photos, "minutes=0.005", *small) == 0, train.err
    assert re.search(r"too short to learn shapes at this size: use minutes=[1-9]", train.out)
    assert "evaluation none, as given" in train.out
    folder = next(Path("outputs").glob("plan_photos*/version_0"))
    config = yaml.safe_load((folder / "config.yaml").read_text())
    written = yaml.safe_load(Path("planned/experiment/plan_photos.yaml").read_text())
    assert config["trainer"]["max_steps"] == written["trainer"]["max_steps"] >= 1
    assert config["model"]["generator_optimizer"]["lr"] == 2.5e-3

    assert train(*first, photos, *small, "minutes=0.005", "resume=auto") == 0
    assert "Nothing was trained" in train.out
    assert len([*Path("planned/experiment").iterdir()]) == 1, "it is not planned again"
    assert train(*first, photos, *small, "minutes=0.01", "resume=auto") == 2
    longer = 2 * written["trainer"]["max_steps"]
    assert f"To train for a total of 0.01 minutes, use trainer.max_steps={longer}." in train.err
    other = "model.generator_width=8", "trainer.max_steps=99", "resume=auto"
    assert train(*first, photos, *small, *other) == 2, "nothing given is dropped"
    assert "different architecture" in train.err


@pytest.mark.runs
def test_a_plan_with_classes_is_timed_and_trained(train, photos, monkeypatch):
    monkeypatch.setattr(planning, "_TRIAL", 0.05)
    for index, path in enumerate(sorted(Path("photos").iterdir())):
        target = path.parent / ("cats", "gardens")[index % 2] / path.name
        target.parent.mkdir(exist_ok=True)
        path.rename(target)
    small = ["data.image_size=16", "model.generator_width=4", "model.discriminator_width=4", "metrics=none"]
    assert train("experiment=photos", photos, "minutes=0.005", "model.num_classes=2", *small) == 0, train.err
    assert "2 classes (model.num_classes=2 uses them)" in train.out


@pytest.mark.runs
def test_evaluations_are_planned_within_a_tenth_of_the_time(ran, photos, speeds, monkeypatch):
    monkeypatch.setattr(planning, "_seconds", lambda work: 0.32)  # for 32 images, each of sampling and judging
    small = ["data.image_size=16", "model.generator_width=4", "model.discriminator_width=4", "data.channels=1"]
    monkeypatch.setattr(planning, "suitable_metrics", lambda *_: ("digits", []))
    ran("plan", photos, *small, "minutes=60")
    written = yaml.safe_load(Path("planned/experiment/plan_photos.yaml").read_text())
    assert {"override /metrics": "digits"} in written["defaults"]
    measured = written["metrics"]
    times = 1 + -(-written["trainer"]["max_steps"] // measured["every_n_steps"])
    assert 40 * 0.01 + times * measured["num_samples"] * 0.02 <= 0.1 * 3600
    assert times >= 7
    out = ran("plan", photos, *small, "minutes=3")
    assert "evaluation none: two would take over a tenth of the time (10 ms an image)" in " ".join(out.split())


@pytest.mark.runs
def test_no_gan_is_measured_with_the_network_that_it_trains_against(ran, photos, speeds, monkeypatch):
    monkeypatch.setattr(planning, "_seconds", lambda work: 0.32)
    small = ["data.image_size=32", "model.generator_width=4", "model.discriminator_width=4", "model.feature_size=32"]
    ran("plan", photos, *small, "model=projected_gan", "minutes=60")
    written = yaml.safe_load(Path("planned/experiment/plan_photos.yaml").read_text())
    assert {"override /metrics": "efficientnet_lite2"} in written["defaults"]


def test_several_runs_or_processes_need_one_plan_before(train, photos, monkeypatch):
    assert train("-m", "experiment=photos", photos, "seed=0,1") == 2
    assert "run `lit-gans plan data.root=photos` once" in train.err
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert train("data=folder", photos) == 2
    assert "data=folder without model= and experiment= chooses settings for one run on a single process" in train.err


@pytest.mark.runs
def test_folders_of_one_name_have_plans_of_their_own(ran, photos, speeds):
    given = ["minutes=20", "metrics=none", "data.image_size=16"]
    Path("other").mkdir()
    shutil.copytree("photos", "other/photos")
    ran("plan", photos, *given)
    out = ran("plan", "data.root=other/photos", *given)
    first, second = sorted(Path("planned/experiment").iterdir())
    assert (first.name, second.name) == ("plan_photos.yaml", "plan_photos_2.yaml")
    assert out.rstrip().endswith(f"experiment={second}")
    for root, path in (("photos", first), ("other/photos", second)):
        assert yaml.safe_load(path.read_text())["data"]["root"] == root
        assert planning._plan_to_resume({"data.root": root}) == path
    ran("plan", photos, *given)
    assert planning._plan_to_resume({"data.root": "photos"}).name == "plan_photos_3.yaml", "the newest"
    Path("photos").rename("moved")
    assert planning._plan_to_resume({"data.root": "moved/../other/../photos"}).name == "plan_photos_3.yaml"
    with pytest.raises(RefusedInput, match=r"planned/experiment has no plan of .*elsewhere to resume with"):
        planning._plan_to_resume({"data.root": "elsewhere", "resume": "auto"})


@pytest.fixture
def earlier(train, tmp_path):
    """A run whose size, width, latents and layers are not those that a plan chooses."""
    tiny = [
        "model=dcgan",
        "data=digits",
        "metrics=none",
        "logger=none",
        "trainer.accelerator=cpu",
        "data.image_size=16",
    ]
    widths = ["model.generator_width=6", "model.discriminator_width=5", "model.latent_dim=7", "model.dense_stem=true"]
    assert train(*tiny, *widths, "data.batch_size=500", "trainer.max_steps=1", "hydra.run.dir=earlier") == 0, train.err


@pytest.mark.runs
def test_a_plan_takes_size_network_and_widths_of_the_run_that_it_begins_with(ran, train, photos, speeds, earlier):
    """It planned networks of its own, and was then refused: only 0% of the generator's weights fit."""
    out = ran("plan", photos, "minutes=0.01", "metrics=none", "init_from=earlier")
    assert speeds == [(16, 16, 6)]
    assert "begins     with earlier: dcgan, 16x16, width 6" in out
    assert "init_from= with a run on similar images" not in out, "it begins with one"
    written = yaml.safe_load(Path("planned/experiment/plan_photos.yaml").read_text())
    assert written["data"]["image_size"] == 16
    taken = ("generator_width", "discriminator_width", "latent_dim", "dense_stem")
    assert [written["model"][name] for name in taken] == [6, 5, 7, True]
    assert "lr" not in str(written["model"]), "learning is planned"
    (line,) = [line for line in out.splitlines() if line.startswith("next:")]
    typed = line.split()[1:]
    assert typed[:2] == ["lit-gans", "train"]
    assert train(*typed[2:], "trainer.max_steps=1") == 0, train.err
    assert "init_from: generator: 100% of the weights; adapted to other color channels" in train.err


@pytest.mark.runs
def test_keys_that_contradict_the_run_are_refused_before_anything_is_timed(refused, photos, speeds, earlier):
    assert "only" in refused("train", "experiment=photos", photos, "init_from=earlier", "model.generator_width=64")
    assert "of a DCGAN, this is a SNGAN" in refused("plan", photos, "init_from=earlier", "model=sngan")
    assert "there is no checkpoint at nothing" in refused("plan", photos, "init_from=nothing")
    assert not speeds


def chosen_on_gpu(given, seconds, timed):
    """The sizes that are chosen on a GPU for 1,000 large pictures, and the timing."""
    choice = planning.Choice({"data.root": "photos", **given})
    timing = planning._choose_sizes(choice, Survey(1000, 0, 300, 300, True, 3), seconds, True, timed)
    keys = "data.image_size", "model.generator_width", "model.discriminator_width", "data.batch_size"
    return [choice.values[key] for key in keys], timing


@pytest.mark.runs
def test_a_gpu_is_measured_at_what_it_trains(photos):
    """A GPU that launches an iteration in 10 ms, and has no memory for 64 images of 256x256 at a width of 64."""

    def timed(config, images):
        size, width, num = images.image_size, config["model"]["generator_width"], images.batch_size
        assert (config["data"]["image_size"], config["data"]["batch_size"]) == ([size, size], num)
        assert config["model"]["discriminator_width"] == width
        if num * width > 64 * 32:
            return None
        return Timing([max(0.01, num * 1e-3 * (size / 256) ** 2 * width / 32)], num, 2**20)

    assert chosen_on_gpu({}, 1000, timed)[0] == [[256, 256], 32, 32, 32], "64 would leave too few iterations"
    sizes, timing = chosen_on_gpu({}, 10_000, timed)
    assert sizes == [[256, 256], 64, 64, 32]
    assert timing.images == 32
    assert chosen_on_gpu({"data.batch_size": 8}, 10_000, timed)[0] == [[256, 256], 64, 64, 8]
    with pytest.raises(RefusedInput, match=r"not enough free memory for data.batch_size=128 with images of 32x32"):
        chosen_on_gpu({"data.batch_size": 128}, 10_000, timed)


def test_a_training_without_memory_is_no_candidate(photos, monkeypatch):
    config, noise = planning.Choice({"data.root": "photos"}).config(metrics="none"), planning.RandomImages(16, 3, 4)
    timing, cpu = Timing([1.0], 4, 90), torch.device("cpu")
    monkeypatch.setattr(planning, "speed", lambda *_: timing)
    assert planning._timed(cpu, config, noise) is timing
    monkeypatch.setattr(planning, "free_memory", lambda _: 100)
    assert planning._timed(cpu, config, noise) is None, "the averaged generator needs memory, too"
    monkeypatch.setattr(planning, "free_memory", lambda _: 120)
    assert planning._timed(cpu, config, noise) is timing


@pytest.mark.parametrize("speeds", [0.4], indirect=True)
def test_a_plan_that_was_timed_on_a_busy_machine_says_so(ran, photos, speeds):
    out = ran("plan", photos, "minutes=20", "metrics=none")
    sentence = "timed on a busy machine: the training waited 60% of the time for a core"
    assert sentence in out
    assert sentence in Path("planned/experiment/plan_photos.yaml").read_text()


@pytest.mark.parametrize(("computed", "busy"), [(1.0, False), (0.95, False), (0.5, True)])
def test_the_share_of_the_time_in_which_a_training_computed(tiny_gan, random_images, fit, computed, busy):
    """A clock that goes on by a second at each look, and a thread that has a part of it."""
    wall, cpu = count(), (computed * second for second in count())
    clock = _Clock(5.0, lambda: next(wall), lambda: next(cpu))
    fit(tiny_gan(), random_images(), max_steps=20, callbacks=[clock])
    assert clock.computing == pytest.approx(computed)
    assert bool(busy_machine([Timing([1.0], 1, None, clock.computing)])) == busy
