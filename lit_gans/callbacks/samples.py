"""Callback that writes sample grids from fixed latents during training, and an animation of the grids."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.loggers import Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from PIL import Image
from torchvision.transforms.functional import pil_to_tensor

from lit_gans.callbacks.checkpoint import refuse_other_run
from lit_gans.callbacks.throughput import paused
from lit_gans.common.atomic import replacing, set_aside, writing
from lit_gans.common.errors import refuse_below
from lit_gans.data.contracts import Plottable
from lit_gans.data.images import write_grid
from lit_gans.training.callback import GenerativeCallback, continues_run, data_of
from lit_gans.training.module import AdversarialModule

GRIDS = "samples"  # name of the folder of the sample grids in a run folder
FILM = "training.gif"
_KEY = "samples"  # key of the grids in loggers
_MAX_FRAMES = 100  # maximum number of frames of the animation
_MIN_FRAME_RATE = 0.002  # GIF stores the duration of a frame as at most 65,535 hundredths of a second
_MAX_FRAME_SIZE = 768  # maximum width and height of a frame, in pixels


class Samples(GenerativeCallback):
    """Writes sample grids to `samples/<iteration>.png` in the run folder, and an animation when the training ends.

    The animation `samples/training.gif` shows the grids of this run. In a resumed run, the animation also shows the
    grids up to the checkpoint from which the run resumed. A new run renames the `samples` folder of an earlier run to
    `samples-1`.

    The loggers of TensorBoard, Weights & Biases and MLflow receive the same grids, see `log_grid`. Samples of
    `Plottable` data, such as points, are plotted. Grids of pix2pix show inputs, translations and targets. Grids of
    CycleGAN also show the images translated back.

    Args:
        every_n_steps: number of generator iterations between two grids.
        num: number of images in a grid; for a generator with classes, rounded down to full rows of one image per class.
        seed: seed of the latents, which are the same in every grid.
        frames_per_second: frame rate of the animation.

    Raises:
        RefusedInput: If a number is below 1, or if the frame rate is below 0.002.
    """

    samples_average = True
    module_class = AdversarialModule
    conflict = "write the same sample grids"

    def __init__(self, every_n_steps: int = 100, num: int = 64, seed: int = 0, frames_per_second: float = 4.0) -> None:
        refuse_below(1, every_n_steps=every_n_steps, num=num)
        refuse_below(_MIN_FRAME_RATE, frames_per_second=frames_per_second)
        self.every_n_steps, self.num, self.seed = every_n_steps, num, seed
        self.frames_per_second = frames_per_second
        self._iterations: list[int] = []  # iterations of this run's grids
        self._written = -1  # iteration of the last grid that this process wrote

    @property
    def state_key(self) -> str:
        return f"Samples({self.num}, {self.seed})"

    def loads_state_of(self, key: str, state: dict[str, Any]) -> bool:
        """Returns whether a state belongs to a `Samples` callback. Settings may differ."""
        return key.partition("(")[0] == "Samples"

    def state_dict(self) -> dict[str, Any]:
        return {"iterations": self._iterations}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._iterations = list(state_dict["iterations"])

    @staticmethod
    def folder(trainer: Trainer) -> Path:
        """Returns the folder of a trainer's grids."""
        return Path(trainer.default_root_dir) / GRIDS

    def on_train_start(self, trainer: Trainer, pl_module: AdversarialModule) -> None:
        refuse_other_run(trainer)
        step, self._written = trainer.global_step, -1
        iterations = [iteration for iteration in grids_in(self.folder(trainer)) if iteration <= step]
        if not continues_run(trainer):
            self._iterations = []
            if trainer.is_global_zero and grids_in(self.folder(trainer)):
                set_aside(self.folder(trainer))
        else:  # the last checkpoint of a run does not list the last grid, which is written after the checkpoint
            self._iterations = [each for each in iterations if each in self._iterations or each == step]
        if trainer.global_step == 0:
            self._write(trainer, pl_module)

    def on_train_batch_end(self, trainer: Trainer, pl_module: AdversarialModule, *_: Any) -> None:
        if trainer.global_step % self.every_n_steps == 0:
            self._write(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: AdversarialModule) -> None:
        if self._written != trainer.global_step:
            self._write(trainer, pl_module)
        if trainer.is_global_zero:
            write_film(self.folder(trainer), self.frames_per_second, self._iterations)

    def _write(self, trainer: Trainer, module: AdversarialModule) -> None:
        self._written = trainer.global_step
        self._iterations.append(trainer.global_step)
        module.gather_generator()
        if not trainer.is_global_zero:
            return
        path = self.folder(trainer) / f"{trainer.global_step:06d}.png"
        with paused(trainer), _replacing(path) as part:
            data = data_of(trainer)
            if isinstance(data, Plottable):
                data.plot(module.sample(data.num_plotted, seed=self.seed), part)
            else:
                images, columns = module.sample_grid(self.num, self.seed, data)
                write_grid(images, part, columns)
        with paused(trainer):
            for logger in trainer.loggers:
                log_grid(logger, path, trainer.global_step)


def log_grid(logger: Logger, path: Path, step: int) -> None:
    """Logs a grid under the key `samples` to TensorBoard, Weights & Biases or MLflow. Skips all other loggers.

    Args:
        logger: logger of Lightning.
        path: path of the grid, a PNG file.
        step: generator iteration of the grid.
    """
    if isinstance(logger, WandbLogger):
        logger.log_image(_KEY, [str(path)], step)
    elif isinstance(logger, TensorBoardLogger | MLFlowLogger):
        with Image.open(path) as grid:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_image(_KEY, pil_to_tensor(grid), step)
            else:
                logger.experiment.log_image(logger.run_id, grid, key=_KEY, step=step)


def grids_in(folder: Path) -> dict[int, Path]:
    """Returns the paths of the grids in a folder, keyed and ordered by iteration."""
    paths = {int(path.stem): path for path in folder.glob("[0-9]*.png") if path.stem.isdecimal()}
    return dict(sorted(paths.items()))


def write_film(folder: Path, frames_per_second: float, iterations: Collection[int] | None = None) -> Path:
    """Writes `training.gif` from the grids in `folder`, ordered by iteration, and returns its path.

    If there are more than 100 grids, the animation shows 100 evenly spaced grids, including the first and the last.
    Frames are at most 768 pixels wide and high. The last frame lasts two seconds. Grids are read one at a time.

    Args:
        folder: folder that contains the grids and receives the animation.
        frames_per_second: frame rate of the animation.
        iterations: iterations whose grids are shown; None shows all grids in the folder.
    """
    paths = [path for step, path in grids_in(folder).items() if iterations is None or step in iterations]
    if len(paths) > _MAX_FRAMES:
        paths = [paths[round(index * (len(paths) - 1) / (_MAX_FRAMES - 1))] for index in range(_MAX_FRAMES)]
    frames = _frames(paths)
    duration = [round(1000 / frames_per_second)] * (len(paths) - 1) + [2000]
    with _replacing(folder / FILM) as part:
        next(frames).save(part, save_all=True, append_images=frames, duration=duration, loop=0)
    return folder / FILM


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Calls `replacing` with a temporary name that keeps the suffix, because the suffix selects the image format."""
    with writing(path), replacing(path, path.with_name(f"unfinished{path.suffix}")) as part:
        yield part


def _frames(paths: list[Path]) -> Iterator[Image.Image]:
    """Yields every image, resized to the size of the first image.

    The first image is scaled down if it exceeds the maximum size. Only one file is open at a time.
    """
    size: tuple[int, int] | None = None
    for path in paths:
        with Image.open(path) as image:
            frame = image.convert("RGB")
        if size is None:
            frame.thumbnail((_MAX_FRAME_SIZE, _MAX_FRAME_SIZE), Image.Resampling.BOX, reducing_gap=None)
            size = frame.size
        yield frame if frame.size == size else frame.resize(size, Image.Resampling.BOX)
