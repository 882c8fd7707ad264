"""The exchange in which ranks agree, with a strategy that is the other rank."""

import signal
from types import SimpleNamespace
from unittest.mock import Mock

import torch
from lightning.pytorch import LightningModule, Trainer

from lit_gans.callbacks import RunCheckpoint
from lit_gans.callbacks.rank_exchange import RankExchange


def trainer_with(reduce):
    strategy = SimpleNamespace(reduce=reduce, root_device=torch.device("cpu"))
    state = {"global_step": 1, "max_steps": -1, "max_epochs": None, "should_stop": False, "callback_metrics": {}}
    state["fit_loop"] = SimpleNamespace(_can_stop_early=False)
    return Mock(spec=Trainer, strategy=strategy, world_size=2, is_global_zero=True, callbacks=[], **state)


def test_the_slowest_rank_sets_the_interval_and_a_save_is_due_on_all_ranks():
    other = torch.tensor([0, 1, -3])
    trainer = trainer_with(lambda values, reduce_op: torch.maximum(values, other))
    exchange = RankExchange()
    exchange.start(trainer, 0.0)
    found = {}
    for trainer.global_step in range(1, 20):
        found[trainer.global_step] = exchange.agree(trainer, trainer.global_step / 100, None, False)
    assert [step for step, (_, is_due) in found.items() if is_due] == [2, 4, 7, 10, 13, 16, 19]


def test_a_signal_that_arrives_during_an_exchange_stops_the_training_at_the_next():
    checkpoint = RunCheckpoint(monitor=None)

    def reduce(values, reduce_op):
        checkpoint._signals.received = int(signal.SIGTERM)
        return values

    trainer = trainer_with(reduce)
    checkpoint.on_train_batch_end(trainer, Mock(spec=LightningModule))
    assert not trainer.should_stop, "the other ranks do not know it"
    trainer.global_step = 10
    checkpoint._save_last = lambda _: None
    checkpoint.on_train_batch_end(trainer, Mock(spec=LightningModule))
    assert trainer.should_stop
    assert checkpoint.received_signal == signal.SIGTERM
