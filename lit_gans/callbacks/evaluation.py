"""Callbacks that measure metrics during training: FID and other scores, mode coverage, and errors of translations."""

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
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from lit_gans.callbacks.checkpoint import RunCheckpoint, refuse_other_run
from lit_gans.callbacks.signals import Abandoned
from lit_gans.callbacks.throughput import paused
from lit_gans.common._compat.lightning import publish_values
from lit_gans.common.atomic import replacing, set_aside, writing
from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.precision import FLOAT32, tf32
from lit_gans.common.rank_zero import computed_once
from lit_gans.data.contracts import HasModes, ImageSource, PairedSource
from lit_gans.data.digests import fingerprint
from lit_gans.data.images import to_networks, to_uint8, to_unit_range
from lit_gans.data.sources.stacked_digits import StackedDigits
from lit_gans.metrics.evaluator import Evaluator, with_labels
from lit_gans.metrics.extractors.base import Extractor, refuse_nameless
from lit_gans.metrics.extractors.digits import DigitsExtractor
from lit_gans.metrics.protocol import RUNNING_STATISTICS, conflicts_of, stamp, versions
from lit_gans.metrics.scores.base import FeatureScore
from lit_gans.metrics.scores.modes import ModeCoverage
from lit_gans.metrics.scores.paired_l1 import PairedL1
from lit_gans.training.callback import GenerativeCallback, callbacks_of, continues_run, data_of, is_last_iteration
from lit_gans.training.module import AdversarialModule
from lit_gans.training.translator import Translator

PROTOCOL = "protocol.json"

logger = logging.getLogger(__name__)

Item = TypeVar("Item")


class Measurement(GenerativeCallback):
    """Base class for callbacks that measure metrics of the sampling generator on all ranks.

    A measurement runs at iteration 0, every `every_n_steps` iterations and at the last iteration. The values are
    logged, stored in checkpoints, and can select the best checkpoint. Checkpoints and `protocol.json` in the run folder
    store the protocol: the settings that the values depend on. A measurement draws from a separate random number
    generator, so the training is bit-identical with and without it.

    If a signal interrupts a measurement, its values are missing. The measurement is repeated after resuming, except at
    iteration 0. If a signal stops the training early, the last completed iteration is not measured. Subclasses
    implement `measure`.

    Args:
        every_n_steps: number of generator iterations between two measurements.
        num_samples: number of generated images per measurement.
        batch_size: number of images generated and measured at once.
        seed: seed of the latents, which are the same in every measurement.

    Attributes:
        headline: key of the value that summaries show first.
        directions: whether the smallest (`min`) or the largest (`max`) value is best, by key; None if neither is best.
        values: values of the last measurement, by key.
        first: values of the first measurement, by key.
        best: best value and its generator iteration, by key.
        measured_at: generator iteration of the last measurement.
        seconds: duration of the last measurement in seconds, without the preparation of the first measurement.
        protocol: settings of the measurement that the values depend on; settings of the training are excluded.
        left_out: reason why a requested score is not measured, by the score's name.

    Raises:
        RefusedInput: If a number is below 1.
    """

    samples_average = True
    module_class = AdversarialModule
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
        self._has_begun = False  # whether `begin` has been called in this run

    # ---- methods that subclasses implement

    def prepare(self, trainer: Trainer, module: AdversarialModule) -> None:
        """Verifies that the model and the data can be measured, and sets `directions`.

        Called before `on_fit_start` of all callbacks, because some of them read `directions` there.
        """

    def begin(self, trainer: Trainer, module: AdversarialModule) -> None:
        """Prepares all measurements of a training run. Called before the first measurement."""

    def measure(self, trainer: Trainer, module: AdversarialModule) -> dict[str, float]:
        """Returns the measured values by key, computed over all ranks. Every rank calls this method."""
        raise NotImplementedError

    def stamp(self, trainer: Trainer, module: AdversarialModule) -> dict[str, Any]:
        """Returns the protocol as JSON-serializable values. Called on rank 0 only, after `begin`."""
        return {
            "data": repr(data_of(trainer)),
            "num_fake": self.num_generated,
            "weights": module.used_weights(),
            "batch_norm": RUNNING_STATISTICS,
            "precision": FLOAT32,
            "seed": self.seed,
            "versions": versions(),
        }

    # ---- schedule and logging of measurements

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        assert isinstance(pl_module, AdversarialModule)  # otherwise, `setup` of the base class raises an error
        if stage == "fit":
            self.prepare(trainer, pl_module)

    def on_train_start(self, trainer: Trainer, pl_module: AdversarialModule) -> None:
        refuse_other_run(trainer)
        is_first = callbacks_of(trainer, Measurement)[0] is self
        if is_first and trainer.is_global_zero and not continues_run(trainer):
            set_aside(Path(trainer.default_root_dir) / PROTOCOL)
        self._has_begun = False
        if trainer.global_step == 0:  # this callback may have been used in a previous run
            self.values, self.first, self.best, self.measured_at, self.protocol = {}, {}, {}, 0, {}
        self._drop_unmeasured()
        self._log(trainer)
        if trainer.global_step == 0:
            self.measure_now(trainer, pl_module)
            # like best.ckpt, `best` excludes the values of the untrained generator
            self.first, self.best = self.values, {}
        elif trainer.global_step % self.every_n_steps == 0 and self.measured_at < trainer.global_step:
            self.measure_now(trainer, pl_module)  # repeats a measurement that a signal interrupted

    def on_train_batch_end(self, trainer: Trainer, pl_module: AdversarialModule, *_: Any) -> None:
        if trainer.global_step % self.every_n_steps == 0 or is_last_iteration(trainer):
            self.measure_now(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: AdversarialModule) -> None:
        """Measures the last iteration if it was not planned as the last iteration, for example with `max_time`."""
        stopped = any(checkpoint.stopped_by_signal for checkpoint in callbacks_of(trainer, RunCheckpoint))
        if self.measured_at != trainer.global_step and not stopped:
            self.measure_now(trainer, pl_module)

    def measure_now(self, trainer: Trainer, module: AdversarialModule) -> None:
        """Measures whatever the schedule says, and logs and stores the values. Every rank calls this method."""
        for callback in callbacks_of(trainer, GenerativeCallback):
            callback.on_measure_start(trainer, f"{_short(self.headline)} on {self.num_generated} samples")
        try:
            with paused(trainer):
                module.gather_generator()
                if not self._has_begun:
                    self.begin(trainer, module)
                    previous, self.protocol = self.protocol, computed_once(partial(self.stamp, trainer, module))
                    self._has_begun = True
                    if conflicts_of(previous, self.protocol):  # the values before a resume with other settings
                        self.values, self.first, self.best = {}, {}, {}
                    self._write_protocol(trainer)
                start = time.monotonic()
                with tf32(False):
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
        """Adds the protocol to `protocol.json` with the key `self.headline`, and keeps the run's other protocols."""
        if trainer.is_global_zero:
            path = Path(trainer.default_root_dir) / PROTOCOL
            protocols = (_read(path) if path.is_file() else {}) | {self.headline: self.protocol}
            with writing(path), replacing(path) as part:
                part.write_text(json.dumps(protocols, indent=2) + "\n", encoding="utf-8")

    def _keep_best(self) -> None:
        for name, direction in self.directions.items():
            if direction is not None and name in self.values:
                new = self.values[name], self.measured_at
                rank = partial(_rank, sign=1 if direction == "min" else -1)
                self.best[name] = min(self.best.get(name, new), new, key=rank)

    def _drop_unmeasured(self) -> None:
        """Drops loaded values of scores that are no longer measured."""
        self.values = {name: value for name, value in self.values.items() if name in self.directions}
        self.first = {name: value for name, value in self.first.items() if name in self.directions}
        self.best = {name: pair for name, pair in self.best.items() if name in self.directions}

    def _log(self, trainer: Trainer) -> None:
        """Passes the last values to callbacks, such as Lightning's `ModelCheckpoint`, and to progress bars.

        `self.log` cannot be called before the first iteration, and would write to the loggers only every
        `log_every_n_steps` iterations.
        """
        values = {name: torch.tensor(value) for name, value in self.values.items()}
        publish_values(trainer, values, {self.headline: self.values[self.headline]} if self.headline in values else {})

    # ---- images of this rank, for subclasses

    @property
    def num_generated(self) -> int:
        """Number of generated images per measurement, over all ranks."""
        return self.num_samples

    def generated(self, trainer: Trainer, module: AdversarialModule) -> Iterator[torch.Tensor]:
        """Yields batches of generated images in [0, 1]. Each rank generates a contiguous part of the images.

        Every rank must exhaust its iterator, see `until_stopped`.
        """
        rows = share(torch.arange(self.num_generated), trainer)
        inputs = module.sampling_share(rows, self.num_generated, self.seed, data_of(trainer))
        labels = self.requested_labels(trainer, module)
        batches = inputs.split(self.batch_size) if len(inputs) else ()
        for batch, classes in self.until_stopped(trainer, with_labels(batches, labels)):
            yield module.decode(batch, labels=classes, seed=self.seed)

    def requested_labels(self, trainer: Trainer, module: AdversarialModule) -> Int64[Tensor, " n"] | None:
        """Returns the class labels of the images that `generated` yields, or None for a generator without classes."""
        labels = module.labels_like(data_of(trainer), self.num_generated)
        return None if labels is None else share(labels, trainer)

    def until_stopped(self, trainer: Trainer, batches: Iterable[Item]) -> Iterator[Item]:
        """Yields the batches until a signal stops the training. Every rank must exhaust the iterator.

        Raises:
            Abandoned: If a signal interrupts the measurement. Its values are then missing, see
                `RunCheckpoint.until_stopped`.
        """
        for checkpoint in callbacks_of(trainer, RunCheckpoint):
            batches = checkpoint.until_stopped(trainer, batches)
        yield from batches

    # ---- checkpoints, and the report of the run's outcome

    def state_dict(self) -> dict[str, Any]:
        best = {name: list(pair) for name, pair in self.best.items()}
        values = {"values": self.values, "first": self.first, "measured_at": self.measured_at}
        return values | {"best": best, "protocol": self.protocol}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.values, self.first = state_dict["values"], state_dict["first"]
        self.measured_at, self.protocol = state_dict["measured_at"], state_dict["protocol"]
        self.best = {name: tuple(pair) for name, pair in state_dict["best"].items()}

    def num_left(self, total: int) -> int:
        """Returns the number of remaining measurements in a run of `total` iterations."""
        return -(-total // self.every_n_steps) - self.measured_at // self.every_n_steps

    def summary(self) -> list[str]:
        """Returns the last values, the best values and the left-out scores as lines for the report of the run."""
        when = f"at iteration {self.measured_at}" if self.measured_at else "of the untrained networks"
        better = {"min": ", lower is better", "max": ", higher is better"}.get(self.directions[self.headline] or "", "")
        last, first = self.values[self.headline], self.first.get(self.headline, math.nan)
        times = f", {first / last:.1f} times as high" if 0 < last < first / 1.5 else ""  # ratios near 1 say nothing
        untrained = f"; untrained: {first:.4g}{times}" if self.measured_at and not math.isnan(first) else ""
        others = {key: value for key, value in self.values.items() if key != self.headline}
        num = f"on {self.protocol.get('num_fake', self.num_samples)} samples"
        left_out = [f"{'':11} left out: {name} ({reason.rstrip('.')})" for name, reason in self.left_out.items()]
        return [
            f"{_short(self.headline):11} {last:.4g} {when}{better}{untrained}",
            f"{'':11} {', '.join([*(f'{_short(key)} {value:.4g}' for key, value in others.items()), num])}",
            *self.best_lines(),
            *left_out,
        ]

    def best_lines(self) -> list[str]:
        """Returns a list with one line of best values. The list is empty if there are no values to show.

        A best value is shown if it differs from the last value and is not worse than the value of the untrained
        networks.
        """
        better = []
        for name, (value, step) in self.best.items():
            untrained = self.first.get(name, math.nan)
            is_worse = value < untrained if self.directions[name] == "max" else value > untrained
            if value != self.values.get(name) and not is_worse:
                better.append(f"{_short(name)} {value:.4g} at iteration {step}")
        return [f"{'':11} best: {', '.join(better)}"] if better else []


class GenerativeMetrics(Measurement):
    """Measures FID, Inception Score and other scores of generated images during training, on all ranks.

    Logs `metric/<name>_<extractor>` with the names `fid`, `is`, `is_spread`, `kid`, `kid_spread`, `mifid`, `precision`,
    `recall`, `density` and `coverage`. Also logs `metric/classes_covered` if the extractor predicts classes, and
    `intra_fid` and `class_accuracy` for a generator with classes. A score is left out if it needs more images than
    there are. A log message, the report of the run and the protocol state the reason. See `Measurement` for the
    schedule and `Evaluator` for the computation.

    Args:
        extractor: feature extractor.
        every_n_steps: number of generator iterations between two measurements. The last iteration is always measured.
        num_samples: number of generated images per measurement.
        batch_size: number of images generated and measured at once.
        seed: seed of splits, subsets and latents. All measurements use the same latents.
        scores: dictionary of scores with arbitrary keys; the value null disables a score. The default null measures the
            FID, the Inception Score, the class coverage if the extractor predicts classes, and the intra-class FID and
            the class accuracy for a generator with classes.
        cache: whether to cache the statistics of the real images in the folder `LIT_GANS_CACHE` for later runs.

    Attributes:
        evaluator: object that computes the scores; created by `setup`.

    Raises:
        RefusedInput: If a number is below 1, if the data has no images, or if every score needs more images than there
            are.
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
        refuse_nameless(extractor)
        self.extractor, self.scores, self.cache = extractor, scores, cache

    @property
    def state_key(self) -> str:
        scores = [] if self.scores is None else [name for name, score in self.scores.items() if score is not None]
        return f"GenerativeMetrics({', '.join([self.extractor.name, *scores, str(self.num_samples), str(self.seed)])})"

    def loads_state_of(self, key: str, state: dict[str, Any]) -> bool:
        """Returns whether a state contains values of the same scores. Settings and version may differ."""
        return key.partition("(")[0] == "GenerativeMetrics" and not self.directions.keys().isdisjoint(state["values"])

    def prepare(self, trainer: Trainer, module: AdversarialModule) -> None:
        """Chooses the scores."""
        data = data_of(trainer)
        if not isinstance(data, ImageSource):
            raise RefusedInput(
                "metrics of images need a datamodule with image_size, channels, num_classes and real_batches"
                " (lit_gans.data.contracts.ImageSource): add these attributes, or use metrics=none."
            )
        if self.extractor.name in module.trains_against:
            raise RefusedInput(
                f"metrics={self.extractor.name} uses a feature extractor that a loss of {type(module).__name__} also"
                " uses, so the generator is trained to score well (arXiv 2203.06026): use metrics=efficientnet_lite2"
                " or inception."
            )
        if not self.extractor.any_channels and data.channels not in (1, 3, 4):
            raise RefusedInput(
                f"metrics={self.extractor.name} measures images with 1, 3 or 4 channels, and the data has"
                f" {data.channels}: use metrics=none, metrics=modes for points, or metrics=module with a custom"
                " extractor."
            )
        device = trainer.strategy.root_device
        device = torch.device("cpu") if device.type == "mps" else device  # MPS lacks float64 for the covariances
        num = module.num_different(self.num_samples, data)  # copies would be each other's neighbors
        if num < self.num_samples and trainer.is_global_zero:
            logger.info("metrics: %s samples, because there are no more images to translate", f"{num:,}")
        settings = num, self.batch_size, self.seed, device
        evaluator = Evaluator(self.extractor, self.scores, *settings, num_classes=module.num_classes)
        evaluator.choose(data)
        self.directions, self.left_out, self.evaluator = evaluator.directions, evaluator.left_out, evaluator
        self.headline = next(iter(self.directions))
        for name, reason in self.left_out.items() if trainer.is_global_zero else ():
            logger.warning("metrics: %s is left out: %s", name, reason)

    @property
    def num_generated(self) -> int:
        return self.evaluator.num_samples

    def begin(self, trainer: Trainer, module: AdversarialModule) -> None:
        self.evaluator.extract(data_of(trainer), self.cache, partial(self.until_stopped, trainer))

    def measure(self, trainer: Trainer, module: AdversarialModule) -> dict[str, float]:
        images = map(to_uint8, self.generated(trainer, module))
        return self.evaluator.measure(images, self.requested_labels(trainer, module))

    def stamp(self, trainer: Trainer, module: AdversarialModule) -> dict[str, Any]:
        data = data_of(trainer)
        protocol = stamp(
            self.evaluator,
            data=repr(data),
            classes=module.class_frequencies(data),
            weights=module.used_weights(),
            trained_against=module.trains_against,
        )
        halves = self.evaluator.real_halves
        compared = {} if math.isnan(halves) else {"real_halves": halves}  # for the report of the run
        return protocol | compared | ({"left_out": self.left_out} if self.left_out else {})

    def summary(self) -> list[str]:
        first, *lines = super().summary()
        halves = self.evaluator.real_halves
        if not self.headline.startswith("metric/fid_") or math.isnan(halves):
            return [first, *lines]
        return [first, f"{'':11} for comparison: {halves:.2f} between two halves of the real images", *lines]


class ModeMetrics(Measurement):
    """Measures how many modes of the data the generated samples cover.

    Logs `metric/modes_covered`, `metric/high_quality` (the fraction of samples in a mode) and `metric/kl_uniform`;
    `lit_gans.metrics.scores.modes` defines them. Requires data with known modes
    (`lit_gans.data.contracts.HasModes`), such as ring, grid and stacked_digits. See `Measurement` for the schedule.

    Args:
        every_n_steps: number of generator iterations between two measurements. The last iteration is always measured.
        num_samples: number of generated samples per measurement; usually 2,500 for points, 25,600 for stacked digits.
        batch_size: number of samples generated at once.
        seed: seed of the latents, which are the same in every measurement.

    Raises:
        RefusedInput: If a number is below 1, or if the data has no known modes.
    """

    headline = "metric/modes_covered"
    directions = {f"metric/{name}": direction for name, direction in ModeCoverage.directions.items()}

    def __init__(
        self, every_n_steps: int = 1000, num_samples: int = 2500, batch_size: int = 2500, seed: int = 1
    ) -> None:
        super().__init__(every_n_steps, num_samples, batch_size, seed)

    def prepare(self, trainer: Trainer, module: AdversarialModule) -> None:
        data = data_of(trainer)
        if not isinstance(data, HasModes):
            raise RefusedInput("metrics=modes needs data with known modes: use data=ring, grid or stacked_digits.")
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
    """Measures the mean absolute difference between translations and targets of held-out pairs, as images in [0, 1].

    Logs `metric/l1`, and `metric/l1_b_to_a` for a model that translates in both directions. See `Measurement` for the
    schedule.

    Args:
        every_n_steps: number of generator iterations between two measurements. The last iteration is always measured.
        num_samples: maximum number of held-out pairs per measurement.
        batch_size: number of images translated at once.
        seed: seed of the dropout masks, which are the same in every measurement.

    Raises:
        RefusedInput: If a number is below 1, or if the data has no pairs.
    """

    headline = "metric/l1"
    directions = {"metric/l1": "min"}

    def __init__(self, every_n_steps: int = 250, num_samples: int = 500, batch_size: int = 64, seed: int = 1) -> None:
        super().__init__(every_n_steps, num_samples, batch_size, seed)

    def prepare(self, trainer: Trainer, module: AdversarialModule) -> None:
        if not isinstance(data_of(trainer), PairedSource):
            raise RefusedInput("metric/l1 needs pairs: use data=digit_edges, data=emoji_lines or data=paired_folder.")
        if isinstance(module, Translator):
            self.directions = {_l1_key(direction): "min" for direction in module.directions}

    def stamp(self, trainer: Trainer, module: AdversarialModule) -> dict[str, Any]:
        pairs = data_of(trainer).held_out
        data_sha256, num, shape = fingerprint([pairs["image"][: self.num_samples]])
        input_sha256 = fingerprint([pairs["input"][: self.num_samples]]).sha256
        digests = {"num_fake": num, "data_sha256": data_sha256, "input_sha256": input_sha256, "image_size": shape[1:]}
        return super().stamp(trainer, module) | digests

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
    """Returns the contiguous part of the rows that belongs to this rank."""
    return rows.tensor_split(trainer.world_size)[trainer.global_rank]


def _rank(pair: tuple[float, int], sign: int) -> tuple[bool, float]:
    """Returns a sort key that is smaller for better values, where NaN is worst; `sign` is -1 if larger is better."""
    return math.isnan(pair[0]), sign * pair[0]


def _short(key: str) -> str:
    return key.removeprefix("metric/")


def _read(path: Path) -> dict[str, Any]:
    """Returns the protocols in a file. Logs a warning and returns an empty dict if the file is damaged, so that the
    training continues.
    """
    try:
        return dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError, RecursionError):
        logger.warning("%s is damaged. It is replaced by a file with the protocols of this run only.", path)
        return {}
