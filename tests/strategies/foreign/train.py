"""Trains the modules of this folder on the ranks there are, as `pytorch_lightning` lets their users do."""

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from unittest.mock import patch

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map

from tests.strategies.test_lightning_packages import forget

RANKS = 2
TRAIN, STOCK, DEEPSPEED = f"{__name__}.outcomes", "ddp_find_unused_parameters_true", "network_deepspeed_stage_2"
# file of this folder: what must be installed, and its name in the guide
FOREIGN = {
    "vocos_experiment": ("vocos", "vocos 0.1.0, `VocosExp`"),
    "stable_audio": ("stable_audio_tools", "stable-audio-tools 0.0.19, `AutoencoderTrainingWrapper`"),
    "sgm_autoencoder": ("sgm", "generative-models `0ad7de9`, `AutoencodingEngine`"),
    "taming_vqgan": ("taming", "taming-transformers-rom1504 0.0.6, `VQModel`"),
    "dmd2": ("main.edm.edm_unified_model", "DMD2 `8d8fa55`, its step (a)"),
    "dac_codec": ("dac", "descript-audio-codec 1.0.0, its step (a)"),
    "aging_gan": ("gan_module", "Fast-AgingGAN `f452c3a`, a CycleGAN"),
}


def difference(found, alone):
    """Returns the largest difference between the weights of two trainings."""
    assert found["weights"].keys() == alone["weights"].keys()
    pairs = [(found["weights"][name].double(), value.double()) for name, value in alone["weights"].items()]
    return max((one - other).abs().max().item() for one, other in pairs if one.numel())


def outcomes(name, strategies, exact):
    """Trains a module with each strategy, and returns the weights, the bytes, and how far training moved the weights.

    Args:
        name: a file of this folder.
        strategies: names of strategies.
        exact: whether to train in float64 with the optimizers of the module, which divide rounding by rounding; else in
            float32 with SGD, since DeepSpeed has no float64.
    """
    forget()
    pl = importlib.import_module("pytorch_lightning")
    importlib.import_module("lit_gans.strategies")
    foreign = importlib.import_module(f"{__package__}.{name}")
    torch.set_default_dtype(torch.float64 if exact else torch.float32)
    return {strategy: _outcome(pl, foreign, strategy, exact) for strategy in strategies}


def _outcome(pl, foreign, strategy, exact):
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    module = foreign.module()
    start = {name: value.clone() for name, value in module.named_parameters()}
    for layer in module.modules():  # gloo has no synchronized batch norm, and each rank has its own statistics
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.train = lambda mode=True, layer=layer: layer
            layer.training = False
    whole = foreign.batches(torch.Generator().manual_seed(1))
    batches = [tree_map(lambda value: value[rank::size], batch) for batch in whole]
    measured = measure(pl)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=size,
        strategy=strategy,
        max_epochs=1,
        max_steps=1000,  # which schedules of vocos divide by
        callbacks=[measured] if exact else [],  # engines of DeepSpeed keep gradients where no callback reads them
        logger=importlib.import_module("pytorch_lightning.loggers.logger").DummyLogger(),  # takes pictures and sound
        use_distributed_sampler=False,
        **dict.fromkeys(("enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False),
    )
    if not exact:
        _use_sgd(module, getattr(foreign, "RATE_OF_SGD", 1e-3))
    with _same_noise(rank, size), _loss_of_halves(foreign, rank, size), _float_is_double() if exact else nullcontext():
        trainer.fit(module, torch.utils.data.DataLoader(batches, batch_size=None))
    assert trainer.fit_loop.epoch_loop.batch_progress.current.completed == len(batches)
    weights = {name: value.clone() for name, value in trainer.strategy.lightning_module_state_dict().items()}
    moved = max((weights[name].cpu() - value).abs().max().item() for name, value in start.items())
    return {"weights": weights, "moved": moved, "sent": measured.sent // len(batches), "held": measured.held}


def measure(pl):
    """Returns a callback that counts the bytes of gradients that a rank sends with DistributedDataParallel, and those
    of the trained parameters, their gradients and the optimizer states that it holds.
    """

    class Measure(pl.Callback):
        sent = held = _gradients = 0

        def on_train_start(self, trainer, module):
            strategy = trainer.strategy
            for replica in getattr(strategy, "replicas", {"": strategy.model}).values():
                if isinstance(replica, DistributedDataParallel):
                    replica.register_comm_hook(None, self._reduce)

        def _reduce(self, state, bucket):
            self.sent += bucket.buffer().nbytes
            return allreduce_hook(None, bucket)

        def on_after_backward(self, trainer, module):
            self._gradients = max(self._gradients, _bytes(p.grad for p in module.parameters() if p.grad is not None))

        def on_train_batch_end(self, trainer, module, *_):
            groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
            states = [state for optimizer in trainer.optimizers for state in optimizer.state.values()]
            stepped = [parameter for group in groups for parameter in group["params"]]
            moments = [value for state in states for value in state.values() if isinstance(value, torch.Tensor)]
            self.held = _bytes(stepped) + self._gradients + _bytes(moments)

    return Measure()


def _bytes(tensors):
    return sum((each.to_local() if isinstance(each, DTensor) else each).nbytes for each in tensors)


def _float_is_double():
    """Lets a module that asks for float get float64."""
    return patch.object(torch.Tensor, "float", torch.Tensor.double)


def _use_sgd(module, rate):
    """Replaces the optimizers that a module makes."""
    configure = module.configure_optimizers

    def with_sgd():
        sgd = lambda parameters, *_, **__: torch.optim.SGD(parameters, lr=rate)  # noqa: E731
        with patch.object(torch.optim, "Adam", sgd), patch.object(torch.optim, "AdamW", sgd):
            return configure()

    module.configure_optimizers = with_sgd


_PLACE = [0, 1]  # of whom the noise is drawn: a rank and the number of ranks


@contextmanager
def _same_noise(rank, size) -> Iterator[None]:
    """Lets each rank draw the noise of the batch of all ranks, and use its part."""
    randn, randint = torch.randn, torch.randint
    _PLACE[:] = rank, size

    def randn_like(like, **_):
        rank, size = _PLACE
        return randn(len(like) * size, *like.shape[1:], dtype=like.dtype)[rank::size]

    def randints(low, high, shape, **kwargs):
        rank, size = _PLACE
        return randint(low, high, (shape[0] * size, *shape[1:]), **kwargs)[rank::size]

    def randn_of(*shape, generator=None, **kwargs):
        rank, size = _PLACE
        shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return randn(shape[0] * size, *shape[1:], **kwargs)[rank::size]

    with (
        patch.object(torch, "randn_like", randn_like),
        patch.object(torch, "randint", randints),
        patch.object(torch, "randn", randn_of),
    ):
        yield


@contextmanager
def _loss_of_halves(foreign, rank, size) -> Iterator[None]:
    """Lets one process compute a loss that is no mean over images as the ranks do: on each rank's part of the batch."""
    if not hasattr(foreign, "LOSS_OF_A_BATCH"):
        yield
        return
    owner, name = foreign.LOSS_OF_A_BATCH
    original, number = getattr(owner, name), count()

    def of_parts(self, batch, *args, **kwargs):
        seed, losses = next(number), []
        for part in range(RANKS) if size == 1 else [rank]:
            torch.manual_seed(seed)
            _PLACE[:] = part, RANKS
            own = tree_map(lambda value: value[part::RANKS], batch) if size == 1 else batch  # noqa: B023
            losses.append(original(self, own, *args, **kwargs))
        return sum(losses) / len(losses)

    with patch.object(owner, name, of_parts):
        yield
