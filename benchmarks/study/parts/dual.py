"""Dual discriminators: scores of DCGAN, D2GAN and D3GAN, or other GANs, by images and by time."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from benchmarks.study.compared import LIMITS, after, at_the_end, by_data, curves
from benchmarks.study.contract import Cell, Part, Picture, Result, Table
from benchmarks.study.film import encoded, film
from benchmarks.study.judges import Judge, judge_of
from benchmarks.study.settings import Settings
from benchmarks.study.training import peak_memory
from lit_gans.callbacks.evaluation import Measurement
from lit_gans.callbacks.throughput import Throughput, paused
from lit_gans.config.build import build
from lit_gans.config.hydra_app import compose
from lit_gans.training.attached import callbacks_of
from lit_gans.training.callback import GenerativeCallback
from lit_gans.training.optim import Optimizer
from lit_gans.training.schedules import Constant

_TILES = 16  # images of a frame of the film
_ABSENT = ("samples", "watch", "early_stopping", "checkpoint", "progress_bar")  # callbacks


class Dual(Part):
    """Trains the GANs on the same images at several batch sizes and with several seeds."""

    title = "Dual discriminators"
    question = (
        "Scores by iterations and by seconds of training (without the measurements), seconds until a given FID, and how"
        " busy processor and device are. A digit classifier or EfficientNet-Lite0 judges: the scores are comparable"
        " with each other, not with the study's FID on 64 features."
    )

    def cells(self, settings: Settings) -> list[Cell]:
        return [
            Cell(
                "dual",
                f"{gan} on {data}, batch {batch_size}, seed {seed}",
                {
                    "gan": gan,
                    "data": data,
                    "batch_size": batch_size,
                    "seed": seed,
                    "device": settings.device,
                    "experiment": judge_of(data).experiment.format(gan=gan),
                    "images": settings.dual_images,
                    "seconds": settings.dual_seconds,
                    "evaluations": settings.evaluations,
                    "samples": settings.dual_samples,
                    "width": settings.width,
                    "film": (batch_size, seed) == (settings.dual_batch_sizes[0], settings.seeds[0]),
                },
                once=True,
            )
            for data in settings.dual_data
            for batch_size in settings.dual_batch_sizes
            for gan in settings.dual_gans
            for seed in settings.seeds
        ]

    def measure(self, cell: Cell) -> dict[str, Any]:
        settings = cell.settings
        with tempfile.TemporaryDirectory() as folder:
            module, data, trainer = build(compose(*_overrides(settings, folder)))
            module.generator_optimizer = _endless(module.generator_optimizer)
            module.discriminator_optimizer = _endless(module.discriminator_optimizer)
            (throughput,), (metrics,) = callbacks_of(trainer, Throughput), callbacks_of(trainer, Measurement)
            trace = Trace(settings, throughput, metrics)
            others = [callback for callback in trainer.callbacks if callback is not metrics]  # type: ignore[attr-defined]
            trainer.callbacks = [*others, trace]  # type: ignore[attr-defined]
            trainer.fit(module, datamodule=data)
        values = {"points": trace.points, "frames": trace.frames, "memory": trace.memory}
        return {**values, "utilization": trace.utilization}

    def tables(self, results: Mapping[str, Sequence[Result]]) -> list[Table]:
        tables = []
        for data, own in by_data(results["dual"]).items():
            tables.append(at_the_end(data, own))
            tables += [after(unit, data, own) for unit in LIMITS if own[0].settings.get(LIMITS[unit]) is not None]
        return tables

    def plots(self, results: Mapping[str, Sequence[Result]]) -> list[Picture]:
        pictures = []
        for data, own in by_data(results["dual"]).items():
            pictures += curves(data, own)
            frames = {r.settings["gan"]: r.repeats[0]["frames"] for r in own if r.repeats[0]["frames"]}
            if frames:
                pictures.append(Picture(f"The trainings on {data} side by side", film(frames), "gif"))
        return pictures


class Trace(GenerativeCallback):
    """Measures the generator on the way to a number of real images and of seconds, and ends the training after both.

    Args:
        settings: those of the cell.
        throughput: callback that counts the seconds of training, and logs in every iteration.
        metrics: callback that measures, without its own intervals.

    Attributes:
        points: iteration, real images, seconds of training and scores of each measurement.
        frames: images of the same latents at each measurement, if the settings ask for a film.
        memory: peak memory of the training until the first measurement, in bytes.
        utilization: that of the callback, mean of the training's seconds.
    """

    reads_losses = False

    def __init__(self, settings: Mapping[str, Any], throughput: Throughput, metrics: Measurement) -> None:
        self.points: list[dict[str, float]] = []
        self.frames: list[str] = []
        self.memory = 0
        self.utilization: dict[str, float] = {}
        self._seconds = 0.0
        self._settings, self._throughput, self._metrics = settings, throughput, metrics
        self._judge: Judge = judge_of(settings["data"])
        shares = [(index + 1) / settings["evaluations"] for index in range(settings["evaluations"])]
        self._due = {
            key: [share * settings[name] for share in shares if settings[name] is not None]
            for key, name in LIMITS.items()
        }

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._metrics.setup(trainer, pl_module, stage)  # type: ignore[arg-type]

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        module: Any = pl_module
        step = trainer.global_step
        now = {"images": step * self._settings["batch_size"] * module.n_critic, "s": self._throughput.seconds}
        self._average(now["s"])
        if all(not due or now[key] < due[0] for key, due in self._due.items()):
            return
        self._due = {key: [value for value in due if value > now[key]] for key, due in self._due.items()}
        self.memory = self.memory or peak_memory(self._settings["device"])  # a large judge needs more
        with paused(trainer):
            values = self._metrics.measure(trainer, module)
            if self._settings["film"]:
                self.frames.append(encoded(module.sample(_TILES, seed=0), 4))
        self.points.append({"iteration": step, **now, **{key: values[key] for key in self._judge.scores}})
        trainer.should_stop = not any(self._due.values())

    def _average(self, seconds: float) -> None:
        share = (seconds - self._seconds) / seconds  # of the last iteration in all seconds until now
        for name, value in self._throughput.utilization.items():
            mean = self.utilization.get(name, 0.0)
            self.utilization[name] = mean + share * (value - mean)
        self._seconds = seconds


def _endless(optimizer: Any) -> Any:
    """Returns settings without a decay until the last iteration, whose number no training here knows in advance."""
    return Optimizer(**{**optimizer.init_args, "schedule": Constant()}) if optimizer.schedule.needs_total else optimizer


def _overrides(settings: Mapping[str, Any], folder: str) -> list[str]:
    samples = settings["samples"]
    chosen = [
        f"experiment={settings['experiment']}",
        *(override.format(samples=samples) for override in judge_of(settings["data"]).overrides),
        f"data.batch_size={settings['batch_size']}",
        "trainer.max_steps=-1",
        f"metrics.num_samples={samples}",
        f"metrics.batch_size={min(250, samples)}",
        f"trainer.accelerator={settings['device']}",
        f"trainer.default_root_dir={folder}",
        f"seed={settings['seed']}",
        "trainer.log_every_n_steps=1",
        "trainer.enable_progress_bar=false",
        "trainer.devices=1",
        *(f"callbacks.{name}=null" for name in _ABSENT),
        "logger=none",
    ]
    if settings["width"] is not None:
        chosen += [f"model.generator_width={settings['width']}", f"model.discriminator_width={settings['width']}"]
    return chosen
