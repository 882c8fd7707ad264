"""Lightning's private parts are still there, and still needed."""

import inspect
from collections import Counter
from pathlib import Path

import pytest
import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.profilers import Profiler
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.strategies.launchers import subprocess_script
from lightning.pytorch.strategies.launchers.subprocess_script import _SubprocessScriptLauncher

from lit_gans.common._compat import lightning as _compat
from lit_gans.common._compat.lightning import CommandLauncher, start_others_with
from lit_gans.strategies.fsdp import NetworkFSDP
from tests.tiny import quiet_trainer
from tests.training import test_epochs


def test_lightning_still_starts_others_with_sys_argv():
    """`CommandLauncher` and `start_others_with` can go once Lightning's launcher takes a command."""
    assert "sys.argv" in inspect.getsource(subprocess_script._basic_subprocess_cmd)
    assert "command" not in inspect.signature(_SubprocessScriptLauncher).parameters


def test_only_trainers_that_start_processes_get_the_launcher():
    for devices, kind in ((1, type(None)), (2, CommandLauncher)):
        strategy = "ddp" if devices > 1 else "auto"
        trainer = Trainer(
            accelerator="cpu", devices=devices, strategy=strategy, logger=False, enable_checkpointing=False
        )
        start_others_with(trainer, ["command"])
        assert type(trainer.strategy.launcher) is kind


def test_lightning_keeps_the_arguments_of_ddp_private():
    assert _compat.finds_unused_parameters(DDPStrategy(find_unused_parameters=True))
    assert not _compat.finds_unused_parameters(DDPStrategy())
    assert not any(name in vars(DDPStrategy) for name in ("ddp_kwargs", "find_unused_parameters")), "use the public one"


def test_lightnings_launcher_waits_for_no_process_that_it_ends():
    launcher = _SubprocessScriptLauncher(LightningEnvironment(), num_processes=2, num_nodes=1)
    assert _compat.children(launcher) == []
    assert _compat.children(None) == []
    assert ".wait(" not in inspect.getsource(_SubprocessScriptLauncher.kill)


def test_lightning_knows_its_backend_only_once_the_group_exists():
    strategy = DDPStrategy(accelerator=CPUAccelerator(), parallel_devices=[torch.device("cpu")] * 2)
    strategy.cluster_environment = LightningEnvironment()
    assert strategy.process_group_backend is None
    assert _compat.process_group_backend(strategy) == "gloo"


@pytest.mark.parametrize("asked", [False, True])
def test_only_the_strategy_knows_of_synchronized_batch_norm(asked):
    devices = {"accelerator": "cpu", "devices": 2, "logger": False}
    trainer = Trainer(strategy=NetworkFSDP(), sync_batchnorm=asked, **devices)
    assert _compat.synchronizes_batch_norm(trainer.strategy) is asked
    assert not [name for name in dir(trainer) if not name.startswith("_") and "sync" in name]


def test_a_strategy_does_not_say_whether_a_plugin_was_chosen():
    left, chosen = DDPStrategy(), DDPStrategy(checkpoint_io=TorchCheckpointIO())
    assert type(left.checkpoint_io) is type(chosen.checkpoint_io) is TorchCheckpointIO
    left, plugin, ours = DDPStrategy(), chosen.checkpoint_io, TorchCheckpointIO()
    for strategy in (left, chosen):
        _compat.use_by_default(strategy, ours)
    assert (left.checkpoint_io, chosen.checkpoint_io) == (ours, plugin)
    with pytest.raises(MisconfigurationException, match="set through both strategy class and plugins"):
        Trainer(strategy=DDPStrategy(checkpoint_io=TorchCheckpointIO()), plugins=[TorchCheckpointIO()])


def test_a_trainer_has_no_public_cluster_environment():
    trainer = Trainer(accelerator="cpu", devices=1, logger=False, enable_checkpointing=False)
    assert "cluster_environment" not in dir(trainer)
    assert "cluster_environment" not in dir(trainer.strategy), "one process has none"
    assert isinstance(_compat.cluster_environment(trainer), LightningEnvironment)


class Rows(Logger):
    """Keeps what it receives."""

    name = version = "rows"

    def __init__(self):
        super().__init__()
        self.rows = []

    def log_hyperparams(self, *_):
        pass

    def log_metrics(self, metrics, step):
        self.rows.append((step, metrics))


def test_loggers_receive_a_row_after_the_last_hook_of_an_iteration_and_of_an_epoch(tmp_path):
    """`row_of_iteration` can go once they receive it before."""
    logger, early = Rows(), []

    def logged_in_iterations():
        return [(step, values) for step, values in logger.rows if "val/index" not in values]

    class Early(Checkpoint):
        def on_train_batch_end(self, trainer, *_):
            if row := _compat.row_of_iteration(trainer):
                assert len(logged_in_iterations()) == len(early), "not yet handed over"
                early.append((row[0], {name: float(value) for name, value in row[1].items()}))

        on_validation_end = on_train_epoch_end = on_train_end = on_train_batch_end

    class Logging(BoringModel):
        def training_step(self, batch, batch_idx):
            self.log("index", float(batch_idx))
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            self.log("val/index", float(batch_idx))

        def on_train_epoch_end(self):
            self.log("ends", float(self.current_epoch))

    settings = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    settings |= {"default_root_dir": tmp_path, "log_every_n_steps": 2}
    settings |= {"limit_train_batches": 4, "limit_val_batches": 1, "max_epochs": 2, "num_sanity_val_steps": 1}
    trainer = Trainer(logger=logger, callbacks=[Early()], **settings)
    trainer.fit(Logging())
    expected = []
    for epoch in (0, 1):
        steps = [(4 * epoch + batch, {"epoch": epoch, "index": float(batch)}) for batch in (1, 3)]
        expected += [*steps, (4 * epoch + 3, {"epoch": epoch, "ends": float(epoch)})]
    assert early == logged_in_iterations() == expected


def test_the_command_line_still_trains_with_the_settings_of_a_checkpoint():
    """`KeepsGivenSettings` can go once Lightning's command line leaves a choice, or no longer reads the checkpoint."""
    assert "self.parser.parse_object(hparams" in inspect.getsource(LightningCLI._parse_ckpt_path)
    assert "adapt_checkpoint_hparams" not in dir(LightningCLI)


class Alternates(BoringModel):
    """Two optimizers, both of which step in each of three batches."""

    def __init__(self, count=lambda trainer: None):
        super().__init__()
        self.automatic_optimization, self.count, self.batches = False, count, []

    def training_step(self, batch, batch_idx):
        self.batches.append(_compat.batch_index(self.trainer))
        for optimizer in self.optimizers():
            self.manual_backward(super().training_step(batch, batch_idx)["loss"])
            optimizer.step()
        self.count(self.trainer)

    def configure_optimizers(self):
        return [torch.optim.SGD([parameter], 0.1) for parameter in self.parameters()]


def fitted(tmp_path, module, **arguments):
    quiet = dict.fromkeys(("enable_progress_bar", "enable_model_summary", "enable_checkpointing", "logger"), False)
    settings = {"max_epochs": 1, "limit_train_batches": 3, "limit_val_batches": 0, "default_root_dir": tmp_path}
    trainer = Trainer(accelerator="cpu", **settings | quiet | arguments)
    trainer.fit(module)
    return trainer


def test_lightning_counts_the_steps_of_all_optimizers_and_no_batches(tmp_path):
    """`batch_index`, `count_step` and `set_steps` can go once it counts batches."""
    module = Alternates()
    assert fitted(tmp_path, module).global_step == 6, "use the public one"
    assert module.batches == [0, 1, 2]
    assert fitted(tmp_path, Alternates(_compat.count_step)).global_step == 9
    assert fitted(tmp_path, Alternates(lambda trainer: _compat.set_steps(trainer, 1))).global_step == 1


def test_published_values_are_those_that_callbacks_read(tmp_path):
    """`publish_values` can go once `self.log` is allowed at the start of a training."""

    class Publishes(Callback):
        def on_train_start(self, trainer, *_):
            _compat.publish_values(trainer, {"metric/a": torch.tensor(1.0)}, {"b": 2.0})
            with pytest.raises(MisconfigurationException, match=r"You can't `self.log\("):
                trainer.lightning_module.log_dict({"metric/a": 1.0}, on_step=True, on_epoch=False, logger=False)

    trainer = fitted(tmp_path, BoringModel(), callbacks=[Publishes()])
    assert trainer.callback_metrics["metric/a"] == trainer.logged_metrics["metric/a"] == 1.0
    assert trainer.progress_bar_metrics["b"] == 2.0


class CallsOfHooks(Profiler):
    """Counts the calls of callback hooks by name."""

    def __init__(self):
        super().__init__()
        self.calls = Counter()

    def start(self, action_name):
        if action_name.startswith("[Callback]"):
            self.calls[action_name.rpartition(".")[2]] += 1

    def stop(self, action_name):
        pass


class CountsBatches(Callback):
    batches = 0

    def on_train_batch_end(self, *_):
        self.batches += 1


@pytest.mark.parametrize("skips", [False, True])
def test_lightning_calls_empty_hooks_unless_they_are_not_callable(skips):
    """`skip_empty_hooks` can go once Lightning itself skips hooks that a callback does not override."""
    counts, empty, profiler = CountsBatches(), Callback(), CallsOfHooks()
    assigned = []
    empty.on_after_backward = lambda *_: assigned.append(1)
    trainer = quiet_trainer(max_steps=3, callbacks=[counts, empty], profiler=profiler)
    if skips:
        _compat.skip_empty_hooks(trainer.callbacks)
    trainer.fit(BoringModel())
    assert (counts.batches, len(assigned)) == (3, 3), "overridden hooks and hooks of an instance are called"
    assert profiler.calls["on_train_batch_end"] == (3 if skips else 6)
    assert profiler.calls["on_before_backward"] == (0 if skips else 6)
    Callback.on_train_batch_end(empty, trainer, None, None, None, 0)  # the classes are not changed


def test_a_plugin_runs_the_hooks_before_a_step_by_a_private_method(tmp_path):
    seen = []

    class Sees(Callback):
        def on_before_optimizer_step(self, trainer, module, optimizer):
            seen.append(optimizer)

        def on_train_end(self, trainer, module):
            seen.clear()
            _compat.run_hooks_before_step(trainer.precision_plugin, module, trainer.optimizers[0])
            assert seen == [trainer.optimizers[0]]

    fitted(tmp_path, BoringModel(), callbacks=[Sees()])
    assert seen
    assert not [name for name in dir(Precision) if "before" in name or ("closure" in name and not name.startswith("_"))]


def test_a_training_with_a_minimum_does_not_stop_before_it():
    assert _compat.may_stop(quiet_trainer(max_steps=4))
    assert not _compat.may_stop(quiet_trainer(max_steps=4, min_steps=2))


def test_epochs_after_a_resume_are_tested_where_they_are_needed():
    """`begin_epoch_after_resume` and `reopen_epoch`, in `tests/training/test_epochs.py`."""
    text = Path(test_epochs.__file__).read_text()
    assert "begin_epoch_after_resume" in text
    assert inspect.signature(_compat.reopen_epoch).parameters.keys() == {"checkpoint"}
