"""Five kinds of loops, each of which trains `planted.Training` on the ranks that torchrun has started."""

import os
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from tests.check.planted import BATCH, Loop, Training, build, data, faulty_loader, optimizers_of, seed

RANK, WORLD_SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
QUIET = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)


def train_with_torch(fault):
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    plain = build(fault)
    optimizers = optimizers_of(plain)
    networks = {name: DistributedDataParallel(network) for name, network in plain.items()}
    loop = Loop(RANK, WORLD_SIZE, plain, optimizers, networks)
    images = data(WORLD_SIZE)
    _train(fault, loop, DataLoader(images, BATCH, sampler=DistributedSampler(images, shuffle=False)))


def train_with_accelerate(fault):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)

    class AccelerateLoop(Loop):
        def backward(self, loss):
            accelerator.backward(loss)

        def unsynchronized(self, name):
            return accelerator.no_sync(self.networks[name])

    plain = build(fault)
    optimizers = optimizers_of(plain)
    networks = {name: accelerator.prepare(network) for name, network in plain.items()}
    prepared = {name: accelerator.prepare(optimizer) for name, optimizer in optimizers.items()}
    loop = AccelerateLoop(RANK, WORLD_SIZE, plain, optimizers, networks, prepared)
    _train(fault, loop, accelerator.prepare(DataLoader(data(WORLD_SIZE), BATCH)))


def train_with_fabric(fault):
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=WORLD_SIZE, strategy="ddp")
    fabric.launch()

    class FabricLoop(Loop):
        def backward(self, loss):
            fabric.backward(loss)

        def unsynchronized(self, name):
            return fabric.no_backward_sync(self.networks[name])

    plain = build(fault)
    optimizers = optimizers_of(plain)
    pairs = {name: fabric.setup(network, optimizers[name]) for name, network in plain.items()}
    networks, prepared = ({name: pair[part] for name, pair in pairs.items()} for part in (0, 1))
    loop = FabricLoop(RANK, WORLD_SIZE, plain, optimizers, networks, prepared)
    _train(fault, loop, fabric.setup_dataloaders(DataLoader(data(WORLD_SIZE), BATCH)))


def _train(fault, loop, loader):
    training = Training(fault, loop)
    seed(fault, loop.rank)
    for images in faulty_loader(fault, loop.rank, loop.world_size) or loader:
        training.iterate(images)


def train_with_trainer(fault, strategy="ddp_find_unused_parameters_true", callbacks=()):
    from lightning.pytorch import LightningModule, Trainer

    class TrainerLoop(Loop):
        def __init__(self, module):
            names = ("generator", "first", "second")
            plain = {name: getattr(module, name) for name in names}
            optimizers = dict(zip(names, module.optimizers(), strict=True))
            raw = {name: optimizer.optimizer for name, optimizer in optimizers.items()}
            super().__init__(module.global_rank, module.trainer.world_size, plain, raw, optimizers=optimizers)
            self.module = module

        def backward(self, loss):
            self.module.manual_backward(loss)

        def unsynchronized(self, name):
            return self.module.trainer.strategy.block_backward_sync()

    class GAN(LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            for name, network in build(fault).items():
                setattr(self, name, network)

        def configure_optimizers(self):
            return [*optimizers_of({name: getattr(self, name) for name in ("generator", "first", "second")}).values()]

        def on_train_start(self):
            self.training_of_gan = Training(fault, TrainerLoop(self))
            seed(fault, self.global_rank)

        def training_step(self, images, batch_idx):
            self.training_of_gan.iterate(images)

    torch.manual_seed(0)
    loader = faulty_loader(fault, RANK, WORLD_SIZE)
    settings = QUIET | {"use_distributed_sampler": loader is None, "callbacks": [*callbacks]}
    trainer = Trainer(accelerator="cpu", devices=WORLD_SIZE, strategy=strategy, max_epochs=1, **settings)
    trainer.fit(GAN(), loader or DataLoader(data(WORLD_SIZE), BATCH))


def train_with_ours(fault):
    import lit_gans.strategies  # noqa: F401 - registers names
    from lit_gans.strategies.base import NetworkStrategy

    # the strategy itself would refuse many of the faults after the first iteration
    with patch.object(NetworkStrategy, "_refuse_different_weights", lambda strategy: None):
        train_with_trainer(fault, "network_ddp")


LOOPS = {
    "torch": train_with_torch,
    "accelerate": train_with_accelerate,
    "fabric": train_with_fabric,
    "lightning": train_with_trainer,
    "ours": train_with_ours,
}
