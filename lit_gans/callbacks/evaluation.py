"""Measurements during training: FID and other scores of generated against real images, modes, pairs."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from jaxtyping import Int64
from lightning.pytorch import Trainer
from torch import Tensor

from lit_gans.callbacks.checkpoint import Checkpoint, refuse_other_run
from lit_gans.callbacks.signals import Abandoned
from lit_gans.callbacks.throughput import paused
from lit_gans.common._compat.lightning import publish_values
from lit_gans.common.atomic import replacing, writing
from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.rank_zero import computed_once
from lit_gans.data.contracts import HasModes, ImageSource, Paired
from lit_gans.data.digests import fingerprint
from lit_gans.data.images import to_networks, to_uint8, to_unit_range
from lit_gans.data.sources.stacked_digits import StackedDigits
from lit_gans.metrics.evaluator import Evaluator, with_labels
from lit_gans.metrics.extractors.base import Extractor
from lit_gans.metrics.extractors.digits import DigitsExtractor
from lit_gans.metrics.protocol import RUNNING_STATISTICS, stamp, versions
from lit_gans.metrics.scores.base import FeatureScore
from lit_gans.metrics.scores.modes import ModeCoverage
from lit_gans.metrics.scores.paired_l1 import PairedL1
from lit_gans.training.callback import GenerativeCallback, callbacks_of, data_of, is_last_iteration
from lit_gans.training.module import AdversarialModule
from lit_gans.training.translator import Translator

PROTOCOL = "protocol.json"

logger = logging.getLogger(__name__)

Item = TypeVar("Item")


class Measurement(GenerativeCallback):
    """Measures the sampling generator at iteration 0, every `every_n_steps` iterations and at the last iteration.

    The values are logged, stored in checkpoints, and can select the best checkpoint. Their protocol is stored in
    checkpoints and in `protocol.json` in the run folder. A measurement uses its own random numbers, so that the
    training is bit-identical with and without it. A signal ends a measurement without values, and the resumed training
    makes it; a training that a signal stops has none at its last iteration. Subclasses implement `measure`, which every
    rank calls.

    Args:
        every_n_steps: number of generator iterations between two measurements.
        num_samples: number of generated images per measurement.
        batch_size: number of images generated and measured at once.
        seed: seed of the latents, the same in every measurement.

    Attributes:
        headline: key of the value that summaries show first.
        directions: whether the best value of each key is the `min` or the `max`; None for neither.
        values, first: the last and the first measured values by key.
        best: the best value of each key and its generator iteration.
        measured_at: generator iteration of the last measurement.
        seconds: duration of the last measurement, without what is prepared once.
        protocol: plain values, besides the training, that the measured values depend on.
        left_out: reason why each requested but unmeasured score is left out, by name.

    Raises:
        RefusedInput: a number below 1.
    """

    headline: str
    directions: dict[str, str | None] = {}

    def __init__(self, every_n_steps: int, num_samples: int, batch_size: int, seed: int) -> None:
        refuse_below(1, every_n_steps=every_n_steps, num_samples=num_samples, batch_size=batch_size)
        self.every_n_steps, self.num_samples, self.batch_size, self.seed = every_n_steps, num_samples, batch_size, seed
        self.values: dict[str, float] = {}
        self.first: dict[str, float] = {}
        self.best: dict[str, tuple[float, int]] = {}
        self.measured_at, self.seconds = 0, 0.0
        self.protocol: dict[str, Any] = {}
        self.left_out: dict[str, str] = {}
        self._begun = False  # whether this training has measured

    # ---- what a subclass defines

    def begin(self, trainer: Trainer, module: AdversarialModule) -> None:
        """Prepares the first measurement of a training."""

    def measure(self, trainer: Trainer, module: AdversarialModule) -> dict[str, float]:
        """Returns values by key, computed over all ranks."""
        raise NotImplementedError

    def stamp(self, trainer: Trainer, module: AdversarialModule) -> dict[str, Any]:
        """Returns the protocol as plain values; called after `begin`, on rank 0 only."""
        return {
            "data": repr(data_of(trainer)),
            "num_fake": self.num_samples,
            "weights": "raw" if module.averaged_generator is None else "ema",
            "batch_norm": RUNNING_STATISTICS,
            "seed": self.seed,
            "versions": versions(),
        }

    # ---- when it measures, and where the values go

    def on_train_start(self, trainer: Trainer, pl_module: AdversarialModule) -> None:
        refuse_other_run(trainer)
        self._begun = False
        self._log(trainer)
        if trainer.global_step == 0:
            self._measure(trainer, pl_module)
            self.first, self.best = self.values, {}  # of a trained generator, as best.ckpt
        elif trainer.global_step % self.every_n_steps == 0 and self.measured_at < trainer.global_step:
            self._measure(trainer, pl_module)  # a signal had ended it

    def on_train_batch_end(self, trainer: Trainer, pl_module: AdversarialModule, *_: Any) -> None:
        if trainer.global_step % self.every_n_steps == 0 or is_last_iteration(trainer):
            self._measure(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: AdversarialModule) -> None:
        """Measures the last iteration if it was not known as the last one, as with `max_time`."""
        stopped = any(each.stopped_by_signal for each in callbacks_of(trainer, Checkpoint))
        if self.measured_at != trainer.global_step and not stopped:
            self._measure(trainer, pl_module)

    def _measure(self, trainer: Trainer, module: AdversarialModule) -> None:
        for callback in callbacks_of(trainer, GenerativeCallback):
            callback.on_measure_start(trainer, f"{_short(self.headline)} on {self.num_samples} samples")
        try:
            with paused(trainer):
                module.gather_generator()
                if not self._begun:
                    self.begin(trainer, module)
                    self.protocol, self._begun = computed_once(partial(self.stamp, trainer, module)), True
                    self._write_protocol(trainer)
                start = time.monotonic()
                self.values = self.measure(trainer, module)
                self.measured_at, self.seconds = trainer.global_step, time.monotonic() - start
                self._keep_best()
                self._log(trainer)
                for logger in trainer.loggers:
                    logger.log_metrics(self.values, step=trainer.global_step)
        except Abandoned:
            return
        for callback in callbacks_of(trainer, GenerativeCallback):
            callback.on_measure_end(trainer)

    def _write_protocol(self, trainer: Trainer) -> None:
        """Writes the protocol under its headline, next to the protocols of the run's other measurements."""
        if trainer.is_global_zero:
            path = Path(trainer.default_root_dir) / PROTOCOL
            others = _read(path) if path.is_file() else {}
            with writing(path), replacing(path) as part:
                part.write_text(json.dumps(others | {self.headline: self.protocol}, indent=2) + "\n", encoding="utf-8")

    def _keep_best(self) -> None:
        for name, direction in self.directions.items():
            if direction is not None and name in self.values:
                best, new = min if direction == "min" else max, (self.values[name], self.measured_at)
                self.best[name] = best(self.best.get(name, new), new, key=lambda pair: pair[0])

    def _log(self, trainer: Trainer) -> None:
        """Hands the last values to callbacks, such as Lightning's `ModelCheckpoint`, and to progress bars.

        `self.log` is not allowed at the start of a training, and would write to loggers every `log_every_n_steps`.
        """
        values = {name: torch.tensor(value) for name, value in self.values.items()}
        publish_values(trainer, values, {self.headline: self.values[self.headline]} if self.headline in values else {})

    # ---- the images of this rank, for subclasses

    def generated(self, trainer: Trainer, module: AdversarialModule) -> Iterator[torch.Tensor]:
        """Yields this rank's batches of generated images in [0, 1], a contiguous share of all images.

        They are to be taken to the end, see `until_stopped`.
        """
        rows = share(torch.arange(self.num_samples), trainer)
        inputs = module.sampling_share(rows, self.num_samples, self.seed, data_of(trainer))
        labels = self.requested_labels(trainer, module)
        batches = inputs.split(self.batch_size) if len(inputs) else ()
        for some, classes in self.until_stopped(trainer, with_labels(batches, labels)):
            yield module.decode(some, labels=classes, seed=self.seed)

    def requested_labels(self, trainer: Trainer, module: AdversarialModule) -> Int64[Tensor, " n"] | None:
        """Returns the classes that `generated` asks for, or None for a generator without classes."""
        labels = module.labels(self.num_samples)
        return None if labels is None else share(labels, trainer)

    def until_stopped(self, trainer: Trainer, batches: Iterable[Item]) -> Iterator[Item]:
        """Yields batches until a signal stops the training; every rank must take its batches to the end.

        Raises:
            Abandoned: a signal came, see `Checkpoint.until_stopped`; nothing is measured then.
        """
        for checkpoint in callbacks_of(trainer, Checkpoint):
            batches = checkpoint.until_stopped(trainer, batches)
        yield from batches

    # ---- checkpoints, and the report of the run

    def state_dict(self) -> dict[str, Any]:
        best = {name: list(pair) for name, pair in self.best.items()}
        values = {"values": self.values, "first": self.first, "measured_at": self.measured_at}
        return values | {"best": best, "protocol": self.protocol}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.values, self.first = state_dict["values"], state_dict["first"]
        self.measured_at, self.protocol = state_dict["measured_at"], state_dict["protocol"]
        self.best = {name: tuple(pair) for name, pair in state_dict["best"].items()}

    def num_left(self, total: int) -> int:
        """Returns the number of measurements to come in a training of `total` iterations."""
        return -(-total // self.every_n_steps) - self.measured_at // self.every_n_steps

    def summary(self) -> list[str]:
        """Returns lines for the report of the run: last and best values, and scores left out."""
        when = f"at iteration {self.measured_at}" if self.measured_at else "of the untrained networks"
        better = {"min": ", lower is better", "max": ", higher is better"}.get(self.directions[self.headline] or "", "")
        last, first = self.values[self.headline], self.first.get(self.headline, math.nan)
        times = f", {first / last:.1f} times as high" if 0 < last < first else ""
        untrained = f"; untrained: {first:.4g}{times}" if self.measured_at and not math.isnan(first) else ""
        others = {key: value for key, value in self.values.items() if key != self.headline}
        num = f"on {self.num_samples} samples"
        left_out = [f"{'':11} left out: {name} ({reason.rstrip('.')})" for name, reason in self.left_out.items()]
        return [
            f"{_short(self.headline):11} {last:.4g} {when}{better}{untrained}",
            f"{'':11} {', '.join([*(f'{_short(key)} {value:.4g}' for key, value in others.items()), num])}",
            *self.best_lines(),
            *left_out,
        ]

    def best_lines(self) -> list[str]:
        """Returns a line with the best values, where these are better than the last and the untrained values."""
        better = []
        for name, (value, step) in self.best.items():
            untrained = self.first.get(name, math.nan)
            is_worse = value < untrained if self.directions[name] == "max" else value > untrained
            if value != self.values.get(name) and not is_worse:
                better.append(f"{_short(name)} {value:.4g} at iteration {step}")
        return [f"{'':11} best: {', '.join(better)}"] if better else []


class GenerativeMetrics(Measurement):
    """Measures scores during training, on all ranks; see `Measurement`, and `Evaluator` for the computation.

    Logs `metric/<name>_<extractor>`: `fid`; `is` and `is_spread`; `kid` and `kid_spread`; `mifid`; `precision`,
    `recall`, `density`, `coverage`; where the extractor knows the classes, `metric/classes_covered`; and for a
    generator with classes `intra_fid` and `class_accuracy`. Scores that need more images are left out; a log message,
    the report of the run and the protocol give the reason.

    Args:
        extractor: feature extractor.
        every_n_steps: number of generator iterations between two measurements; the last iteration is always measured.
        num_samples: number of generated images per measurement.
        batch_size: number of images generated and measured at once.
        seed: seed of the latents, the same in every measurement, and of splits and subsets.
        scores: scores by any name, null for those that are disabled; null measures FID, Inception Score and, where the
            extractor knows the classes, their coverage, and for a generator with classes those inside classes.
        cache: whether to cache the statistics of the real images for further runs (in `LIT_GANS_CACHE`).

    Attributes:
        evaluator: compares images by the scores that are measured; `setup` makes it.

    Raises:
        RefusedInput: a number below 1, data without images, or too few images for every score.
    """

    evaluator: Evaluator

    def __init__(
        self,
        extractor: Extractor,
        every_n_steps: int = 250,
        num_samples: int = 2500,
        batch_size: int = 250,
        seed: int = 1,
        scores: dict[str, FeatureScore | None] | None = None,
        cache: bool = True,
    ) -> None:
        super().__init__(every_n_steps, num_samples, batch_size, seed)
        self.extractor, self.scores, self.cache = extractor, scores, cache

    @property
    def state_key(self) -> str:
        scores = [] if self.scores is None else [name for name, score in self.scores.items() if score is not None]
        return f"GenerativeMetrics({', '.join([self.extractor.name, *scores, str(self.num_samples), str(self.seed)])})"

    def loads_state_of(self, key: str, state: dict[str, Any]) -> bool:
        """Returns whether a state has values of these scores, also of other settings or of an earlier version."""
        return key.partition("(")[0] == "GenerativeMetrics" and not self.directions.keys().isdisjoint(state["values"])

    def setup(self, trainer: Trainer, pl_module: AdversarialModule, stage: str) -> None:
        """Chooses what is measured, before any callback follows a value of it."""
        data = data_of(trainer)
        if not isinstance(data, ImageSource):
            raise RefusedInput(
                "metrics of images need a datamodule with image_size, channels, num_classes and real_batches"
                " (lit_gans.data.contracts.ImageSource): add them, or use metrics=none."
            )
        if self.extractor.name in pl_module.trains_against:
            raise RefusedInput(
                f"metrics={self.extractor.name} would judge {type(pl_module).__name__} by a network that it is trained"
                " against, which it learns to please (arXiv 2203.06026): use metrics=efficientnet_lite2 or inception."
            )
        if not self.extractor.any_channels and data.channels not in (1, 3, 4):
            raise RefusedInput(
                f"metrics={self.extractor.name} measures images with 1, 3 or 4 channels, and the data has"
                f" {data.channels}: use metrics=none, metrics=modes for points, or metrics=module with an extractor of"
                " your own."
            )
        device = trainer.strategy.root_device
        device = torch.device("cpu") if device.type == "mps" else device  # MPS has no float64 for the covariances
        given = self.num_samples, self.batch_size, self.seed, device
        evaluator = Evaluator(self.extractor, self.scores, *given, num_classes=pl_module.num_classes)
        evaluator.choose(data)
        self.directions, self.left_out, self.evaluator = evaluator.directions, evaluator.left_out, evaluator
        self.headline = next(iter(self.directions))
        for name, reason in self.left_out.items() if trainer.is_global_zero else ():
            logger.warning("metrics: %s is left out: %s", name, reason)

    def begin(self, trainer: Trainer, module: AdversarialModule) -> None:
        self.evaluator.extract(data_of(trainer), self.cache, partial(self.until_stopped, trainer))

    def measure(self, trainer: Trainer, module: AdversarialModule) -> dict[str, float]:
        images = map(to_uint8, self.generated(trainer, module))
        return self.evaluator.measure(images, self.requested_labels(trainer, module))

    def stamp(self, trainer: Trainer, module: AdversarialModule) -> dict[str, Any]:
        weights = "raw" if module.averaged_generator is None else "ema"
        data = repr(data_of(trainer))
        protocol = stamp(self.evaluator, data=data, weights=weights, trained_against=module.trains_against)
        return protocol | ({"left_out": self.left_out} if self.left_out else {})

    def summary(self) -> list[str]:
        first, *others = super().summary()
        halves = self.evaluator.real_halves
        if not self.headline.startswith("metric/fid_") or math.isnan(halves):
            return [first, *others]
        return [first, f"{'':11} for comparison: {halves:.2f} between two halves of the real images", *others]


class ModeMetrics(Measurement):
    """Logs `metric/modes_covered`, `metric/high_quality` (fraction of samples in a mode) and `metric/kl_uniform`.

    Requires data with known modes (`lit_gans.data.contracts.HasModes`), such as ring, grid and stacked_digits. See
    `Measurement`, and `lit_gans.metrics.scores.modes` for the values.

    Args:
        every_n_steps: number of generator iterations between two measurements; the last iteration is always measured.
        num_samples: number of generated samples per measurement; usually 2,500 for points, 25,600 for stacked digits.
        batch_size: number of samples generated at once.
        seed: seed of the latents, the same in every measurement.

    Raises:
        RefusedInput: a number below 1, or data without modes.
    """

    headline = "metric/modes_covered"
    directions = {f"metric/{name}": direction for name, direction in ModeCoverage.directions.items()}

    def __init__(
        self, every_n_steps: int = 1000, num_samples: int = 2500, batch_size: int = 2500, seed: int = 1
    ) -> None:
        super().__init__(every_n_steps, num_samples, batch_size, seed)

    def setup(self, trainer: Trainer, pl_module: AdversarialModule, stage: str) -> None:
        data = data_of(trainer)
        if not isinstance(data, HasModes):
            raise RefusedInput("metrics=modes needs data whose modes are known: data=ring, grid or stacked_digits.")
        if isinstance(data, StackedDigits):
            data.set_classifier(DigitsExtractor())

    def stamp(self, trainer: Trainer, module: AdversarialModule) -> dict[str, Any]:
        data = data_of(trainer)
        return super().stamp(trainer, module) | {"num_modes": data.num_modes, "min_samples": data.min_samples}

    def measure(self, trainer: Trainer, module: AdversarialModule) -> dict[str, float]:
        data = data_of(trainer)
        metric = ModeCoverage(data.num_modes, data.min_samples).to(module.device)
        for samples in self.generated(trainer, module):
            metric.update(data.modes_of(samples))
        return {f"metric/{name}": value.item() for name, value in metric.compute().items()}


class PairedMetrics(Measurement):
    """Logs `metric/l1`, the mean absolute difference between translations and targets in [0, 1] of held-out pairs.

    A model that translates in both directions also has `metric/l1_b_to_a`. See `Measurement`.

    Args:
        every_n_steps: number of generator iterations between two measurements; the last iteration is always measured.
        num_samples: number of pairs per measurement, at most all held-out pairs.
        batch_size: number of images translated at once.
        seed: seed of dropout, the same in every measurement.

    Raises:
        RefusedInput: a number below 1, or data without pairs.
    """

    headline = "metric/l1"
    directions = {"metric/l1": "min"}

    def __init__(self, every_n_steps: int = 250, num_samples: int = 500, batch_size: int = 64, seed: int = 1) -> None:
        super().__init__(every_n_steps, num_samples, batch_size, seed)

    def setup(self, trainer: Trainer, pl_module: AdversarialModule, stage: str) -> None:
        if not isinstance(data_of(trainer), Paired):
            raise RefusedInput("metric/l1 needs pairs: data=digit_edges, data=emoji_lines or data=paired_folder.")
        if isinstance(pl_module, Translator):
            self.directions = {_l1_key(direction): "min" for direction in pl_module.directions}

    def stamp(self, trainer: Trainer, module: AdversarialModule) -> dict[str, Any]:
        pairs = data_of(trainer).held_out
        data_sha256, num, shape = fingerprint([pairs["image"][: self.num_samples]])
        input_sha256 = fingerprint([pairs["input"][: self.num_samples]]).sha256
        found = {"num_fake": num, "data_sha256": data_sha256, "input_sha256": input_sha256, "image_size": shape[1:]}
        return super().stamp(trainer, module) | found

    def measure(self, trainer: Trainer, module: AdversarialModule) -> dict[str, float]:
        pairs = {name: images[: self.num_samples] for name, images in data_of(trainer).held_out.items()}
        names, values = ("input", "image"), {}
        for direction in module.directions if isinstance(module, Translator) else ("a_to_b",):
            source, target = names if direction == "a_to_b" else names[::-1]
            decode = partial(module.decode_in, direction) if isinstance(module, Translator) else module.decode
            metric = PairedL1().to(module.device)
            batches = torch.arange(len(pairs["image"])).split(self.batch_size)
            for index in self.until_stopped(trainer, batches[trainer.global_rank :: trainer.world_size]):
                images = decode(to_networks(pairs[source][index]), seed=self.seed)
                metric.update(images, to_unit_range(pairs[target][index]).to(images.device))
            values[_l1_key(direction)] = metric.compute().item()
        return values


def _l1_key(direction: str) -> str:
    return "metric/l1" if direction == "a_to_b" else f"metric/l1_{direction}"


def share(rows: Tensor, trainer: Trainer) -> Tensor:
    """Returns this rank's rows, a contiguous share."""
    return rows.tensor_split(trainer.world_size)[trainer.global_rank]


def _short(key: str) -> str:
    return key.removeprefix("metric/")


def _read(path: Path) -> dict[str, Any]:
    """Returns the protocols of a file; none, with a warning, if it is damaged: a training does not end for it."""
    try:
        return dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError, RecursionError):
        logger.warning("%s is damaged and is written again, with the protocols of this run alone.", path)
        return {}
