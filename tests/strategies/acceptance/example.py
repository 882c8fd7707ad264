"""What the examples of this folder share: data that is the same on any number of ranks, and their options.

The examples are LightningModules as their users write them; nothing in them is of this project, but for the way to say
that gradients accumulate.
"""

from contextlib import nullcontext

import torch
from lightning.pytorch import LightningModule
from torch.utils.data import DataLoader

from lit_gans.strategies.base import block_backward_sync

STEPS = 4
BATCH_SIZE = 4  # of all ranks together


class Example(LightningModule):
    """A module with manual optimization; its subclass has `networks`, `sample` and `training_step`.

    Args:
        accumulate: number of microbatches of a step.
        clip: maximum norm of the gradients that an optimizer steps with.
        adam: whether to train with Adam instead of SGD.
    """

    def __init__(self, accumulate=1, clip=None, adam=False):
        super().__init__()
        self.automatic_optimization = False
        self.accumulate, self.clip, self.adam = accumulate, clip, adam
        torch.manual_seed(0)
        self.build()

    def optimizer(self, *parameters):
        listed = [parameter for group in parameters for parameter in group]
        return (
            torch.optim.Adam(listed, 1e-3, betas=(0.5, 0.9))
            if self.adam
            else torch.optim.SGD(listed, 0.05, momentum=0.5)
        )

    def accumulated(self, loss_of, batch, **named):
        """Runs the backward of a loss in microbatches; the last one reduces the gradients."""
        parts = zip(*(tensor.chunk(self.accumulate) for tensor in batch), strict=True)
        for index, part in enumerate(parts, start=1):
            last = index == self.accumulate
            with nullcontext() if last else block_backward_sync(self.trainer.strategy):
                self.manual_backward(loss_of(*part) / self.accumulate, **named)

    def step(self, optimizer):
        if self.clip is not None:
            self.clip_gradients(optimizer, self.clip, "norm")
        optimizer.step()
        optimizer.zero_grad()

    def train_dataloader(self):
        generator = torch.Generator().manual_seed(1)
        own = slice(self.global_rank, None, self.trainer.world_size)
        dtype = next(self.parameters()).dtype
        batches = [tuple(tensor.to(dtype)[own] for tensor in self.sample(BATCH_SIZE, generator)) for _ in range(STEPS)]
        return DataLoader(batches, batch_size=None)
