"""Checkpoints that a training keeps: by iterations, by time, the last few, some permanently, and the best few."""

import shutil
import signal
from unittest.mock import patch

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint as LightningCheckpoint
from lightning.pytorch.callbacks import LambdaCallback
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader

from lit_gans.callbacks import RunCheckpoint, rank_exchange
from lit_gans.callbacks import checkpoint as module
from lit_gans.checkpoints.locate import verified_iteration
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.fsdp import NetworkFSDP
from tests.strategies import ranks
from tests.tiny import fit, random_images, tiny_gan

from .test_early_stopping import Given


class Noted(LightningCheckpoint):
    """Notes the iterations of the files in a folder after every iteration; Lightning calls it last, as it says."""

    def __init__(self, folder):
        self.folder, self.seen = folder, {}

    def on_train_batch_end(self, trainer, *_):
        self.seen[trainer.global_step] = iterations(self.folder)


def iterations(folder):
    """The iteration in each checkpoint, by file name without the suffix."""
    return {path.stem: torch.load(path, weights_only=True)["global_step"] for path in sorted(folder.glob("*"))}


@pytest.fixture
def kept(tiny_gan, random_images, fit, tmp_path):
    """Trains with a checkpoint callback; returns the iterations of its files, after each iteration."""

    def run(max_steps, *others, model=None, resume=None, **settings):
        noted, checkpoint = Noted(tmp_path / "checkpoints"), RunCheckpoint(**settings)
        callbacks = [*others, checkpoint, noted]
        fit(model or tiny_gan(), random_images(), max_steps, resume, callbacks=callbacks, enable_checkpointing=True)
        return noted.seen

    return run


def numbered(kind, *steps):
    return {f"{kind}-{step:08d}": step for step in steps}


class StepsTwoOptimizers(LightningModule):
    """Does not step its first optimizer in the first batch: the iterations after its batches are 1, 3, 5 and so on."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.layers = nn.ModuleList(nn.Linear(1, 1) for _ in range(2))

    def training_step(self, batch, batch_idx):
        for optimizer, layer in list(zip(self.optimizers(), self.layers, strict=True))[batch_idx == 0 :]:
            optimizer.zero_grad()
            self.manual_backward(layer.weight.sum())
            optimizer.step()

    def configure_optimizers(self):
        return [torch.optim.SGD(layer.parameters(), 0.1) for layer in self.layers]


def test_iterations_that_skip_the_number_are_saved_after_it(kept):
    """No checkpoint was saved, because no iteration was a multiple of four."""
    seen = kept(9, model=StepsTwoOptimizers(), every_n_train_steps=4)
    assert seen == {1: {}, 3: {}, 5: {"last": 5}, 7: {"last": 5}, 9: {"last": 9}}


def test_by_default_the_last_one_is_kept_by_generator_iterations(kept, tiny_gan):
    seen = kept(5, model=tiny_gan(n_critic=2), every_n_train_steps=2)
    assert seen == {1: {}, 2: {"last": 2}, 3: {"last": 2}, 4: {"last": 4}, 5: {"last": 5}}


def test_the_last_few_and_every_nth_for_ever(kept, tmp_path):
    seen = kept(11, every_n_train_steps=2, keep_last=3, keep_every_n_train_steps=5)
    assert seen[4] == {"last": 4, **numbered("step", 2, 4)}
    assert seen[5] == {"last": 5, **numbered("step", 2, 4, 5)}
    assert seen[6] == {"last": 6, **numbered("step", 4, 5, 6)}
    assert seen[8] == {"last": 8, **numbered("step", 5, 6, 8)}
    assert seen[11] == {"last": 11, **numbered("step", 5, 8, 10, 11)}
    last, newest = (tmp_path / f"checkpoints/{name}.ckpt" for name in ("last", "step-00000011"))
    assert last.samefile(newest), "two names of the same bytes"


@pytest.mark.parametrize("keep_last", [1, 2])
def test_permanent_checkpoints_stay_if_a_resumed_run_keeps_none(kept, tmp_path, keep_last):
    kept(4, every_n_train_steps=1, keep_last=2, keep_every_n_train_steps=2)
    last = tmp_path / "checkpoints/last.ckpt"
    seen = kept(7, resume=last, every_n_train_steps=1, keep_last=keep_last)
    assert seen[7] == {"last": 7, **numbered("step", 2, 4), **(numbered("step", 6, 7) if keep_last == 2 else {})}


def test_a_resumed_run_removes_what_the_run_before_left(kept, tmp_path):
    kept(4, every_n_train_steps=1, keep_last=3)
    seen = kept(6, resume=tmp_path / "checkpoints/step-00000003.ckpt", every_n_train_steps=1, keep_last=2)
    assert seen[6] == {"last": 6, **numbered("step", 5, 6)}


def test_checkpoints_of_an_abandoned_training_stay(kept, tmp_path):
    kept(6, every_n_train_steps=2, keep_last=3)
    beside = tmp_path / "checkpoints"
    seen = kept(3, resume=beside / "step-00000002.ckpt", every_n_train_steps=1, keep_last=2)
    assert seen[3] == {"last": 3, "step-00000002": 2, "step-00000003": 3, "step-00000004": 4, "step-00000006": 6}
    assert not list(beside.glob("*.lit_gans_part"))


def test_the_best_few_are_kept_in_either_direction(kept, tmp_path):
    values = (1.0, 5.0, 7.0, 3.0, 4.0, 2.0, 9.0)  # from iteration 0 on, which is not saved
    seen = kept(6, Given(values), every_n_train_steps=6, monitor="metric/given", save_top_k=2)
    assert seen[1] == {"best": 1, **numbered("best", 1)}
    assert seen[2] == {"best": 1, **numbered("best", 1, 2)}
    assert seen[3] == {"best": 3, **numbered("best", 1, 3)}
    assert seen[4] == {"best": 3, **numbered("best", 3, 4)}
    assert seen[6] == {"best": 5, "last": 6, **numbered("best", 3, 5)}
    shutil.rmtree(tmp_path / "checkpoints")  # a new run replaces no other one
    seen = kept(6, Given(values, "max"), every_n_train_steps=6, monitor="metric/given", save_top_k=2)
    assert seen[6] == {"best": 6, "last": 6, **numbered("best", 2, 6)}


@pytest.mark.parametrize("direction", ["min", "max"])
def test_what_is_not_a_number_is_never_better(kept, direction):
    nan = float("nan")
    seen = kept(3, Given((1.0, nan, 5.0, nan), direction), every_n_train_steps=6, monitor="metric/given")
    assert [files["best"] for files in seen.values()] == [1, 2, 2]


def test_a_resumed_training_knows_the_best_few(kept, tmp_path):
    settings = {"every_n_train_steps": 6, "monitor": "metric/given", "save_top_k": 2}
    kept(3, Given((1.0, 5.0, 7.0, 3.0)), **settings)
    seen = kept(5, Given((4.0, 8.0)), resume=tmp_path / "checkpoints/last.ckpt", **settings)
    assert seen[5] == {"best": 3, "last": 5, **numbered("best", 3, 4)}


def test_a_run_that_resumes_an_earlier_checkpoint_keeps_no_best_of_its_future(kept, tmp_path):
    settings = {"monitor": "metric/given", "every_n_train_steps": 1}
    kept(4, Given([9.0, 5.0, 6.0, 4.0, 1.0]), keep_last=9, **settings)
    folder = tmp_path / "checkpoints"
    with pytest.warns(UserWarning, match=r"best.ckpt is of iteration 4, but .* iteration 1: .* best-00000004.ckpt"):
        seen = kept(3, Given([7.0]), resume=folder / "step-00000002.ckpt", **settings)
    best = {name: step for name, step in seen[3].items() if name.startswith("best")}
    assert best == {"best": 3, "best-00000004": 4}, "the best until iteration 2 has no file any more"


@pytest.mark.parametrize("exists", [False, True])
def test_a_sharded_best_checkpoint_has_one_name_after_it_is_renamed(tmp_path, exists):
    names = ["best.ckpt", "best-00000004.ckpt"] if exists else ["best.ckpt"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "shard").write_text(name)
    module._rename_best(tmp_path, 4)
    assert [path.name for path in tmp_path.iterdir()] == ["best-00000004.ckpt"]
    assert (tmp_path / "best-00000004.ckpt/shard").read_text() == "best.ckpt", "the newer one"


def test_a_resumed_run_that_keeps_more_of_the_best_keeps_the_first_one(kept, tmp_path):
    kept(3, Given([9.0, 5.0, 6.0, 4.0]), monitor="metric/given")
    last = tmp_path / "checkpoints/last.ckpt"
    seen = kept(5, Given([8.0, 3.0]), resume=last, monitor="metric/given", save_top_k=3)
    assert {**numbered("best", 3, 4), "best": 3}.items() <= seen[4].items()
    assert {**numbered("best", 3, 4, 5), "best": 5}.items() <= seen[5].items()


def test_a_value_that_is_not_logged_again_is_not_one_of_the_best(kept):
    def log(trainer, module, *_):
        if trainer.global_step in (1, 4):
            module.log("own", 6.0 - trainer.global_step)

    seen = kept(6, LambdaCallback(on_train_batch_end=log), monitor="own", save_top_k=3)
    assert {name for name in seen[6] if name.startswith("best-")} == {*numbered("best", 1, 4)}


def test_handlers_that_a_user_sets_after_a_training_stay(tiny_gan, random_images, fit):
    received, before = [], signal.getsignal(signal.SIGTERM)
    checkpoint = RunCheckpoint()
    try:
        trainer = fit(tiny_gan(), random_images(), 1, callbacks=[checkpoint], enable_checkpointing=True)
        signal.signal(signal.SIGTERM, lambda *_: received.append("mine"))
        checkpoint.teardown(trainer, trainer.lightning_module, "predict")
        signal.raise_signal(signal.SIGTERM)
        assert received == ["mine"]
        trainer.fit_loop.epoch_loop.max_steps = 2
        trainer.fit(trainer.lightning_module, random_images())
        signal.raise_signal(signal.SIGTERM)
        assert received == ["mine"] * 2
    finally:
        signal.signal(signal.SIGTERM, before)


def test_time_counts_from_the_last_save(kept, monkeypatch):
    """An iteration takes 4 seconds here."""
    clock = {"now": 100.0}

    later = LambdaCallback(on_train_batch_start=lambda *_: clock.update(now=clock["now"] + 4.0))
    monkeypatch.setattr(module, "monotonic", lambda: clock["now"])
    seen = kept(9, later, every_n_train_steps=4, train_time_interval=10)
    assert {step: files.get("last") for step, files in seen.items()} == {
        **dict.fromkeys((1, 2), None),
        **{3: 3, 4: 4, 5: 4, 6: 4, 7: 7, 8: 8, 9: 9},
    }


class RunsOut(RunCheckpoint):
    """A clock that runs out on rank 0 alone, in the second iteration."""

    def on_train_batch_end(self, trainer, *rest):
        self._saved_at = -1e9 if trainer.is_global_zero and trainer.global_step == 2 else module.monotonic()
        super().on_train_batch_end(trainer, *rest)


def fit_on_a_rank(where, max_steps, callback, **settings):
    strategy = {"devices": 2, "strategy": NetworkFSDP(**settings), "enable_checkpointing": True}
    data = random_images(batch_size=4)
    return fit(tiny_gan("gan"), data, max_steps, callbacks=[callback], default_root_dir=where, **strategy)


def keeps_on_a_rank(where):
    """Trains on two ranks with sharded checkpoints; they exchange in every iteration."""
    settings = {"every_n_train_steps": 4, "train_time_interval": 60, "keep_last": 4, "keep_every_n_train_steps": 3}
    with patch.object(rank_exchange, "_EXCHANGE_SECONDS", 0.0):
        fit_on_a_rank(where, 5, RunsOut(**settings), sharded_checkpoints=True)


@pytest.mark.ranks
def test_ranks_agree_on_the_time_and_folders_are_kept_like_files(tmp_path):
    ranks.run("tests.callbacks.test_checkpoint.keeps_on_a_rank", tmp_path, where=tmp_path)
    found = {path.stem: verified_iteration(path) for path in (tmp_path / "checkpoints").iterdir()}
    assert found == {"last": 5, **numbered("step", 2, 3, 4, 5)}
    assert all(path.is_dir() for path in (tmp_path / "checkpoints").iterdir())


class Collectives(TorchDispatchMode):
    """Counts the collectives inside."""

    count = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.count += operator.namespace == "c10d"
        return operator(*args, **kwargs or {})


class Counted(RunCheckpoint):
    """Counts its collectives, notes the iterations with a save, and receives a signal on rank 1 in an iteration."""

    def __init__(self, signal_at, **settings):
        super().__init__(**settings)
        self.signal_at, self.collectives, self.saved = signal_at, [], []

    def on_train_batch_start(self, trainer, *_):
        module.monotonic.now += 0.125  # a second has eight iterations
        if trainer.global_rank == 1 and trainer.global_step == self.signal_at:
            signal.raise_signal(signal.SIGTERM)

    def on_train_batch_end(self, trainer, *rest):
        with Collectives() as collectives:
            super().on_train_batch_end(trainer, *rest)
        if collectives.count:
            self.collectives.append(trainer.global_step)

    def _save(self, trainer, name):
        self.saved.append(trainer.global_step)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def stops_on_a_rank(where, signal_at):
    callback = Counted(signal_at, every_n_train_steps=1000)
    with patch.object(module, "monotonic", Clock()):
        trainer = fit_on_a_rank(where, 70, callback)
    return trainer.global_step, callback.received_signal, callback.saved, callback.collectives


@pytest.mark.ranks
def test_ranks_exchange_once_a_second_and_stop_at_the_same_iteration(tmp_path):
    every = [1, 3, 7, 15, 23, 31, 39, 47, 55, 63]
    where = "tests.callbacks.test_checkpoint.stops_on_a_rank"
    assert ranks.run(where, tmp_path, where=tmp_path, signal_at=None) == [(70, None, [70], [*every, 70])] * 2
    stopped = (31, signal.SIGTERM, [31], every[:6])
    assert ranks.run(where, tmp_path, where=tmp_path, signal_at=27) == [stopped] * 2


class Validates(LightningModule):
    """Logs the given values: in validation after every second iteration, or at the end of each epoch of 4 iterations.

    Its weight is the number of its iterations.
    """

    def __init__(self, values, at_epoch_end=False):
        super().__init__()
        self.automatic_optimization = False
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.values, self.at_epoch_end = iter(values), at_epoch_end

    def training_step(self, batch, batch_idx):
        self.weight.grad = -torch.ones(())
        self.optimizers().step()

    def validation_step(self, batch, batch_idx):
        if not self.at_epoch_end and not self.trainer.sanity_checking:
            self.log("val/score", next(self.values))

    def on_train_epoch_end(self):
        if self.at_epoch_end:
            self.log("val/score", next(self.values))

    def configure_optimizers(self):
        return torch.optim.SGD([self.weight], 1.0)

    def train_dataloader(self):
        return DataLoader(torch.zeros(4))

    def val_dataloader(self):
        return DataLoader(torch.zeros(1))

    def fit(self, folder, callback, **settings):
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
        epochs = {"max_epochs": 3, "val_check_interval": 2, "num_sanity_val_steps": 0}
        Trainer(default_root_dir=folder, callbacks=[callback], **quiet, **(epochs | settings)).fit(self)


@pytest.mark.parametrize(("at_epoch_end", "iterations"), [(False, 2), (True, 4)])
def test_a_value_of_the_validation_selects_the_weights_that_it_validated(tmp_path, at_epoch_end, iterations):
    values = [5.0, 1.0, 3.0, 2.0, 4.0, 6.0]
    checkpoint = RunCheckpoint(monitor="val/score", save_top_k=2)
    Validates(values, at_epoch_end).fit(tmp_path, checkpoint, num_sanity_val_steps=1)
    assert (checkpoint.best_value, checkpoint.best_step) == (1.0, 2 * iterations)
    names = [f"best-{2 * iterations:08d}", f"best-{(3 if at_epoch_end else 4) * iterations:08d}", "best"]
    weights = [torch.load(tmp_path / f"checkpoints/{name}.ckpt")["state_dict"]["weight"].item() for name in names]
    assert weights == [int(names[0][5:]), int(names[1][5:]), 2 * iterations]


def test_the_last_checkpoint_knows_the_best_value_of_its_validation(tmp_path):
    Validates([5.0, 4.0, 3.0, 2.0, 1.5, 1.0]).fit(tmp_path, RunCheckpoint(every_n_train_steps=2, monitor="val/score"))
    content = torch.load(tmp_path / "checkpoints/last.ckpt")
    assert content["global_step"] == 12
    assert content["callbacks"]["RunCheckpoint(val/score)"]["top"] == {12: 1.0}


def test_the_mean_of_an_epoch_is_no_value_of_its_last_iteration(tmp_path):
    class Forked(Validates):
        def training_step(self, batch, batch_idx):
            super().training_step(batch, batch_idx)
            self.log("loss", 9.0 - self.global_step % 4, on_step=True, on_epoch=True)

    checkpoint = RunCheckpoint(monitor="loss", save_top_k=20)
    Forked([1.0] * 9).fit(tmp_path, checkpoint)
    assert {*checkpoint._best.values.values()} == {6.0, 7.0, 8.0, 9.0}


def test_a_value_that_is_logged_once_counts_once_if_something_is_measured_in_its_iteration(tmp_path):
    class Measured(RunCheckpoint):
        def on_train_batch_end(self, trainer, *rest):
            if trainer.global_step == 3:
                self.on_measure_end(trainer)
            super().on_train_batch_end(trainer, *rest)

    class Once(Validates):
        def training_step(self, batch, batch_idx):
            super().training_step(batch, batch_idx)
            if self.trainer.global_step == 3:
                self.log("score", 3.0)

    checkpoint = Measured(monitor="score", save_top_k=20)
    Once([1.0] * 9).fit(tmp_path, checkpoint)
    assert checkpoint._best.values == {3: 3.0}


def test_a_second_run_saves_a_best_checkpoint_of_a_value_that_the_first_has_had(tmp_path):
    checkpoint = RunCheckpoint(monitor="val/score")
    for name in ("first", "second"):
        Validates([2.0, 2.0]).fit(tmp_path / name, checkpoint, max_epochs=1)
        assert (tmp_path / name / "checkpoints/best.ckpt").exists()


def test_a_validation_that_comes_later_than_the_first_epoch_is_awaited(tmp_path):
    checkpoint = RunCheckpoint(monitor="val/score")
    Validates([3.0]).fit(tmp_path, checkpoint, val_check_interval=None, check_val_every_n_epoch=3)
    assert (checkpoint.best_value, checkpoint.best_step) == (3.0, 12)


def test_a_value_that_no_epoch_logs_is_refused(tmp_path):
    module = Validates([1.0] * 6)
    with pytest.raises(RefusedInput, match="monitor=val/scor: nothing measures it; did you mean 'val/score'"):
        module.fit(tmp_path, RunCheckpoint(monitor="val/scor"))
    assert module.weight.item() == 4
