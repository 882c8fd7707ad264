"""Power-function averages of the generator's weights, and averages of other widths that are computed after training.

Karras et al. 2024, "Analyzing and Improving the Training Dynamics of Diffusion Models", section 3 and appendix C.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from lit_gans.callbacks.checkpoint import refuse_other_run
from lit_gans.callbacks.throughput import paused
from lit_gans.common.atomic import remove, replacing, set_aside, writing
from lit_gans.common.errors import RefusedInput, refuse_below, refusing
from lit_gans.strategies.average import AveragedParameters
from lit_gans.strategies.base import sharding
from lit_gans.training.callback import GenerativeCallback, continues_run, num_iterations
from lit_gans.training.module import AdversarialModule

FOLDER = "averages"  # name of the snapshots' folder in the folder of a run
_BUFFERS = "buffers"  # prefix of the names of buffers in a snapshot; the index of a width is the prefix of its average
_MAX_WIDTH = 12**-0.5  # width of the uniform average, whose exponent is 0
_MAX_ERROR = 0.02  # maximum relative difference between a requested and a computed profile


class PowerEMA(GenerativeCallback):
    """Stores power-function averages of the generator's weights, from which `lit-gans average` computes other widths.

    At iteration t, an average is multiplied by (1 - 1/t)^(gamma + 1) before the weights are added (Karras et al. 2024,
    equation 8). The profile therefore keeps its shape relative to the length of the training. Rank 0 writes snapshots
    `averages/ITERATION.safetensors` to the run folder, with all averages and the buffers of the generator. The averages
    are also in every checkpoint, so that a resumed run continues them. Each average needs the memory of one generator.

    Samples and metrics use the average of `EMA`.

    Args:
        widths: widths of the averages: standard deviations of their profiles relative to the length of the training
            (sigma_rel in the paper), above 0 and below 0.288.
        num: number of snapshots, evenly distributed over the training; more give more precise averages.

    Raises:
        RefusedInput: If a number is out of range, if the training run has no end, or if a resumed run has no averages
            of these widths.
    """

    conflict = "write the same snapshots of averages"
    module_class = AdversarialModule

    def __init__(self, widths: tuple[float, ...] = (0.05, 0.1), num: int = 50) -> None:
        refuse_below(1, num=num)
        if not widths or len({*widths}) < len(widths):
            raise RefusedInput(f"widths={list(widths)}: expected one or more different widths.")
        self.widths, self.num = tuple(widths), num
        self._exponents = [exponent(width) for width in widths]
        self._averages: list[AveragedParameters] = []
        self._names: list[str] = []
        self._full: list[dict[str, Tensor]] = []  # initial values of the averages for the next fit
        self._every_n_steps = 1
        self._written = -1  # iteration of the last snapshot that this process wrote

    @staticmethod
    def folder(trainer: Trainer) -> Path:
        """Returns the folder of a trainer's snapshots."""
        return Path(trainer.default_root_dir) / FOLDER

    def state_dict(self) -> dict[str, Any]:
        return {"widths": [*self.widths], "averages": self._full_averages()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if tuple(state_dict["widths"]) != self.widths:
            raise RefusedInput(
                f"widths={[*self.widths]} of PowerEMA differ from the checkpoint's: use widths={state_dict['widths']}."
            )
        self._averages, self._full = [], [dict(average) for average in state_dict["averages"]]

    def on_train_start(self, trainer: Trainer, pl_module: AdversarialModule) -> None:
        refuse_other_run(trainer)
        step, total = trainer.global_step, num_iterations(trainer)
        if not total:
            raise RefusedInput("PowerEMA distributes its snapshots over the training, which has no end: set max_steps.")
        if step == 0:  # this callback may have been used in a previous run
            self._full = []
        elif not self._full:
            raise RefusedInput(
                f"PowerEMA averages the weights from the first iteration on, but the checkpoint of iteration {step} has"
                " no such averages: remove PowerEMA, or start a new run with it."
            )
        self._every_n_steps, self._written = math.ceil(total / self.num), -1
        parameters = dict(pl_module.generator.named_parameters())
        self._names = [*parameters]
        starts: list[list[Tensor] | None] = [None for _ in self.widths]
        if self._full:
            starts = [[full[name].to(p.device, copy=True) for name, p in parameters.items()] for full in self._full]
        # every rank averages its own shards; `_write` gathers them
        self._averages = [AveragedParameters(parameters.values(), trainer.strategy, start) for start in starts]
        self._full = []
        if trainer.is_global_zero:
            snapshots = snapshots_in(self.folder(trainer))
            if not continues_run(trainer) and snapshots:
                set_aside(self.folder(trainer))
            elif continues_run(trainer):
                for snapshot in snapshots:
                    if snapshot.iteration > step:
                        remove(snapshot.path)

    @torch.no_grad()
    def on_train_batch_end(self, trainer: Trainer, pl_module: AdversarialModule, *_: Any) -> None:
        for average, gamma in zip(self._averages, self._exponents, strict=True):
            average.update((1 - 1 / trainer.global_step) ** (gamma + 1))
        if trainer.global_step % self._every_n_steps == 0:
            self._write(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: AdversarialModule) -> None:
        if self._written != trainer.global_step > 0:
            self._write(trainer, pl_module)
        self._averages, self._full = [], self._full_averages()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if self._averages and sharding(trainer.strategy) is None:  # other ranks might have exited
            self._averages, self._full = [], self._full_averages()

    def _full_averages(self) -> list[dict[str, Tensor]]:
        """Returns the full averages by their names in the generator. Every rank must call this method."""
        return self._full or [
            {name: full.cpu().clone() for name, full in zip(self._names, average.full(), strict=True)}
            for average in self._averages
        ]

    def _write(self, trainer: Trainer, module: AdversarialModule) -> None:
        module.finite.raise_if_diverged()
        self._written = step = trainer.global_step
        averages = self._full_averages()
        if not trainer.is_global_zero:
            return
        tensors = {f"{index}.{name}": full for index, average in enumerate(averages) for name, full in average.items()}
        tensors |= {f"{_BUFFERS}.{name}": buffer.cpu() for name, buffer in module.generator.named_buffers()}
        # copies, because safetensors does not support tensors that share memory
        copies = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
        metadata = {"iteration": str(step), "widths": json.dumps(self.widths)}
        path = self.folder(trainer) / f"{step:06d}.safetensors"
        with paused(trainer), writing(path), replacing(path) as part:
            save_file(copies, part, metadata)


def exponent(width: float) -> float:
    """Returns the exponent gamma of the power function with a given width (Karras et al. 2024, algorithm 2).

    Raises:
        RefusedInput: If the width is not above 0 and below 12^(-1/2), the width of the uniform average.
    """
    if not 0 < width < _MAX_WIDTH:
        raise RefusedInput(f"width={width} must be greater than 0 and less than {_MAX_WIDTH:.4f}.")
    inverse = width**-2
    return float(np.roots([1, 7, 16 - inverse, 12 - inverse]).real.max())


@dataclass(frozen=True)
class Snapshot:
    """Snapshot of averages that `PowerEMA` wrote.

    Args:
        path: path of the safetensors file.
        iteration: iteration at which the snapshot was written.
        widths: widths of the averages.
    """

    path: Path
    iteration: int
    widths: tuple[float, ...]

    def tensors(self, prefix: int | str) -> dict[str, Tensor]:
        """Reads the average with an index, or the `buffers`.

        Raises:
            RefusedInput: If the file cannot be read.
        """
        with refusing(f"{self.path} cannot be read as safetensors"), safe_open(self.path, "pt") as file:
            names = [name for name in file.keys() if name.startswith(f"{prefix}.")]  # noqa: SIM118 - not a mapping
            return {name.partition(".")[2]: file.get_tensor(name) for name in names}


def snapshots_in(folder: Path) -> list[Snapshot]:
    """Returns the snapshots in a folder, ordered by iteration.

    Raises:
        RefusedInput: If a file is damaged, or was not written by `PowerEMA`.
    """
    snapshots = []
    for path in folder.glob("*.safetensors"):
        with refusing(f"{path} cannot be read as a snapshot of PowerEMA; remove it"), safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            snapshots.append(Snapshot(path, int(metadata["iteration"]), tuple(json.loads(metadata["widths"]))))
    return sorted(snapshots, key=lambda snapshot: snapshot.iteration)


def combination(
    times: list[int], exponents: list[float], time: int, exponent: float
) -> tuple[np.ndarray[Any, np.dtype[np.float64]], float]:
    """Returns the coefficients of the sum of averages that is closest to another average (algorithm 3).

    Args:
        times: iterations of the averages.
        exponents: exponents of the averages.
        time: iteration of the other average.
        exponent: exponent of the other average.

    Returns:
        The coefficients, and the L2 norm of the difference between both profiles relative to the requested profile.
    """
    t, gamma = np.array(times, dtype=np.float64), np.array(exponents)
    products = _product(t[:, None], gamma[:, None], t, gamma)
    target = _product(t, gamma, np.float64(time), np.float64(exponent))
    norm = _product(*(np.float64(time), np.float64(exponent)) * 2)
    found = np.linalg.lstsq(products, target, rcond=None)[0]
    squared = (norm - 2 * found @ target + found @ products @ found) / norm
    return found, math.sqrt(max(0.0, float(squared)))


def _product(t_a: Any, gamma_a: Any, t_b: Any, gamma_b: Any) -> Any:
    """Returns the integrals of the products of profiles (gamma + 1) tau^gamma / t^(gamma + 1) over tau up to t."""
    earlier, later = np.minimum(t_a, t_b), np.maximum(t_a, t_b)
    power = np.where(t_a < t_b, gamma_b, gamma_a)  # exponent of the later profile
    return (gamma_a + 1) * (gamma_b + 1) / (gamma_a + gamma_b + 1) * (earlier / later) ** power / later


def load_average(module: AdversarialModule, snapshots: list[Snapshot], width: float) -> float:
    """Computes the average of a width at the iteration of the last snapshot, as the module's averaged generator.

    The sum is computed in float64. Buffers are the buffers of the last snapshot.

    Args:
        module: module of the run.
        snapshots: snapshots of the run, ordered by iteration; one or more.
        width: width of the average, see `PowerEMA`.

    Returns:
        The relative error of the profile, see `combination`.

    Raises:
        RefusedInput: If the width is out of range, if the snapshots do not determine its average, or if they are from
            another generator.
    """
    columns = [(snapshot, index) for snapshot in snapshots for index in range(len(snapshot.widths))]
    times = [snapshot.iteration for snapshot, _ in columns]
    exponents = [exponent(snapshot.widths[index]) for snapshot, index in columns]
    coefficients, error = combination(times, exponents, times[-1], exponent(width))
    if error > _MAX_ERROR:
        raise RefusedInput(
            f"width={width}: {len(snapshots)} snapshots of widths {', '.join(map(str, snapshots[-1].widths))} give its"
            f" profile only with an error of {error:.1%}: use a width closer to these, or train with more snapshots"
            " (callbacks.power_ema.num)."
        )
    average = module.start_average()
    parameters, buffers = dict(average.named_parameters()), dict(average.named_buffers())
    sums = {name: torch.zeros_like(parameter, dtype=torch.float64) for name, parameter in parameters.items()}
    for (snapshot, index), coefficient in zip(columns, coefficients.tolist(), strict=True):
        for name, tensor in _checked(snapshot, index, sums).items():
            sums[name].add_(tensor.double(), alpha=coefficient)
    with torch.no_grad():
        for name, tensor in sums.items():
            parameters[name].copy_(tensor)
        for name, tensor in _checked(snapshots[-1], _BUFFERS, buffers).items():
            buffers[name].copy_(tensor)
    return error


def _checked(snapshot: Snapshot, prefix: int | str, expected: dict[str, Tensor]) -> dict[str, Tensor]:
    """Reads tensors of a snapshot. Raises `RefusedInput` if their names or shapes differ from `expected`."""
    tensors = snapshot.tensors(prefix)
    if {name: tensor.shape for name, tensor in tensors.items()} != {name: t.shape for name, t in expected.items()}:
        raise RefusedInput(f"{snapshot.path} is from a generator with other tensors than this run's: remove the file.")
    return tensors
