import sys

import pytest
import torch
from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger
from PIL import Image
from torchvision.transforms.functional import pil_to_tensor

from lit_gans.callbacks import Samples
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.callbacks.samples import write_film
from lit_gans.data.images import write_grid
from lit_gans.training.optim import OptimizerConfig


def test_grids_at_every_nth_and_the_last_iteration_and_a_film(tiny_gan, random_images, fit, tmp_path):
    module = tiny_gan(generator_optimizer=OptimizerConfig("SGD", lr=1.0))  # a film drops frames that are alike
    fit(module, random_images(), max_steps=5, callbacks=[Samples(every_n_steps=2, num=4)])
    folder = tmp_path / "samples"
    names = [f"{step:06d}.png" for step in (0, 2, 4, 5)]
    assert sorted(path.name for path in folder.iterdir()) == [*names, "training.gif"]
    with Image.open(folder / "training.gif") as film:
        assert film.n_frames == 4


def test_every_grid_shows_the_latents_of_the_seed(tiny_gan, random_images, fit, tmp_path):
    still = OptimizerConfig("SGD", lr=1e-12)
    module = tiny_gan("gan", generator_optimizer=still, discriminator_optimizer=still)  # without running statistics
    images, columns = module.sample_grid(4, 3)
    assert images.std() > 0.01
    fit(module, random_images(), max_steps=1, callbacks=[Samples(every_n_steps=1, num=4, seed=3)])
    write_grid(images, tmp_path / "expected.png", columns)
    for step in (0, 1):
        shown = pixels(tmp_path / f"samples/{step:06d}.png")
        torch.testing.assert_close(shown, pixels(tmp_path / "expected.png"), rtol=0, atol=1)


@pytest.mark.parametrize(("num", "size", "columns"), [(64, 60, 10), (10, 10, 10), (9, 9, 3)])
def test_a_grid_of_classes_has_full_rows(tiny_gan, num, size, columns):
    images, found = tiny_gan(num_classes=10).sample_grid(num, 0)
    assert (len(images), found) == (size, columns)


def test_the_film_shows_the_grids_in_order_and_the_last_for_two_seconds(tmp_path):
    for step, gray in ((0, 10), (2, 200), (10, 90)):
        Image.new("RGB", (8, 8), (gray, gray, gray)).save(tmp_path / f"{step:06d}.png")
    path = write_film(tmp_path, frames_per_second=4.0)
    with Image.open(path) as film:
        shown = []
        for index in range(film.n_frames):
            film.seek(index)
            shown.append((film.convert("L").getpixel((0, 0)), film.info["duration"]))
    assert shown == [(10, 250), (200, 250), (90, 2000)]


def test_a_long_run_has_a_film_of_100_frames(tmp_path):
    for step in range(130):
        Image.new("RGB", (16, 8), (step, 2 * step % 256, 255 * (step == 129))).save(
            tmp_path / f"{step * 10000:06d}.png"
        )
    with Image.open(write_film(tmp_path, frames_per_second=4.0)) as film:
        assert (film.n_frames, film.size) == (100, (16, 8))
        film.seek(0)
        first = film.convert("RGB").getpixel((5, 5))
        film.seek(99)
        last = film.convert("RGB").getpixel((5, 5))
    assert first == pytest.approx((0, 0, 0), abs=3)
    assert last == pytest.approx((129, 2, 255), abs=3), (
        "the grid of iteration 1,290,000, whose name is longer, is the last"
    )


@pytest.mark.parametrize(("sizes", "film_size"), [((8, 16), (8, 8)), ((1600, 1600), (768, 768))])
def test_a_film_has_the_size_of_the_first_grid_scaled_down_where_it_is_large(tmp_path, sizes, film_size):
    for step, size in enumerate(sizes):
        Image.new("RGB", (size, size), (100 * step, 0, 0)).save(tmp_path / f"{step:06d}.png")
    with Image.open(write_film(tmp_path, frames_per_second=4.0)) as film:
        assert (film.n_frames, film.size) == (2, film_size)


def pixels(path):
    with Image.open(path) as image:
        return pil_to_tensor(image.convert("RGB"))


@pytest.fixture
def logged(tiny_gan, random_images, fit, tmp_path):
    """Trains for four iterations with a logger, and returns the pixels of the grids of iterations 0, 2 and 4."""

    def run(*loggers):
        module = tiny_gan(generator_optimizer=OptimizerConfig("SGD", lr=1.0))  # so that no two grids are alike
        fit(
            module,
            random_images(),
            4,
            callbacks=[Samples(every_n_steps=2, num=4)],
            logger=list(loggers),
            log_every_n_steps=2,
        )
        return {step: pixels(tmp_path / f"samples/{step:06d}.png") for step in (0, 2, 4)}

    return run


def test_tensorboard_shows_every_grid_at_its_iteration(logged, tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)  # an import fails
    logger = TensorBoardLogger(tmp_path, name="", version="tensorboard")
    grids = logged(CSVMetrics(str(tmp_path)), logger)
    events = EventAccumulator(logger.log_dir, {"images": 0}).Reload()
    shown = {event.step: event.encoded_image_string for event in events.Images("samples")}
    assert shown.keys() == grids.keys()
    for step, encoded in shown.items():
        path = tmp_path / "shown.png"
        path.write_bytes(encoded)
        assert torch.equal(pixels(path), grids[step])


@pytest.mark.filterwarnings("default")  # of other packages
def test_weights_and_biases_shows_every_grid(logged, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    logger = WandbLogger(save_dir=tmp_path, project="test", offline=True)
    rows, log = [], logger.experiment.log
    monkeypatch.setattr(logger.experiment, "log", lambda row: (rows.append(row), log(row)))
    grids = logged(logger)
    wandb.finish()
    assert [row["trainer/global_step"] for row in rows if "samples" in row] == [0, 2, 4]
    shown = sorted((tmp_path / "wandb").rglob("offline-run*/files/media/images/*.png"), key=lambda path: path.name)
    assert len(shown) == 3
    for path, grid in zip(shown, grids.values(), strict=True):
        assert torch.equal(pixels(path), grid)


@pytest.mark.filterwarnings("default")  # of other packages
def test_mlflow_shows_every_grid_at_its_iteration(logged, tmp_path):
    pytest.importorskip("mlflow")
    logger = MLFlowLogger(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db", artifact_location=str(tmp_path / "mlflow"))
    grids = logged(logger)
    shown = sorted((tmp_path / "mlflow").rglob("images/samples+step*.png"), key=lambda path: path.name)
    assert [path.name.split("+")[2] for path in shown] == ["0", "2", "4"]
    for path, grid in zip(shown, grids.values(), strict=True):
        assert torch.equal(pixels(path), grid)
