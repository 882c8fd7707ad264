"""`AgingGAN` of Fast-AgingGAN, a CycleGAN that is written for Lightning 1: four networks and two optimizers."""

import torch
from gan_module import AgingGAN

SETTINGS = {"ngf": 8, "ndf": 8, "n_blocks": 1, "lr": 1e-3, "weight_decay": 1e-4}
SETTINGS |= {"adv_weight": 2, "cycle_weight": 10, "identity_weight": 7}


class Ported(AgingGAN):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        for index, optimizer in enumerate(self.optimizers()):
            self.toggle_optimizer(optimizer)
            self.manual_backward(super().training_step(batch, batch_idx, index)["loss"])
            optimizer.step()
            optimizer.zero_grad()
            self.untoggle_optimizer(optimizer)


def module():
    return Ported(SETTINGS)


def batches(generator):
    return [tuple(torch.rand(4, 3, 32, 32, generator=generator) * 2 - 1 for _ in range(2)) for _ in range(3)]
