"""`python -m tests.training.compiled CASE` trains a GAN compiled and not, in float64, and prints how they compare."""

import json
import sys

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import LambdaCallback
from torch import nn
from torch.utils.data import DataLoader

STEPS = 3
TINY = {"image_size": 16, "channels": 1, "latent_dim": 6, "generator_width": 4, "discriminator_width": 4}
# a GAN, settings, and the compiled passes of an iteration: of the generator, of the discriminator in both turns
CASES = {
    "r1": ("gan", {"r1_gamma": 1.0}, 1 + 2 + 1),
    "two microbatches": ("gan", {"r1_gamma": 1.0, "r2_gamma": 1.0, "accumulate_gradients": 2}, 4 + 4 + 2),
    "wgan_gp": ("wgan_gp", {"n_critic": 2, "network": "mlp"}, 2 + 4 + 1 + 1),
    "shared scores": ("r3gan", {}, 1 + 0 + 1 + 2),
    "d2gan": ("d2gan", {"r1_gamma": 1.0, "network": "mlp"}, 1 + 4 + 2),
    "pairs": ("pix2pix", {"r1_gamma": 1.0, "patch_depth": 2}, 1 + 2 + 1),
    "no penalty": ("sngan", {"n_critic": 2}, 2 + 4 + 1 + 1),
}


def counted(called):
    """Returns a backend that differentiates ahead of time, as the default does, and notes its calls."""

    def backend(graph, inputs):
        compiled = torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

        def run(*arguments):
            called.append(graph)
            return compiled(*arguments)

        return run

    return backend


def images(num):
    generator = torch.Generator().manual_seed(0)
    return [
        {"image": image, "input": image.flip(0)}
        for image in torch.rand(num, 1, 16, 16, generator=generator, dtype=torch.float64) * 2 - 1
    ]


def train(module, callbacks):
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    num = 4 * module.batches_per_step
    trainer = Trainer(max_epochs=1, accelerator="cpu", precision="64-true", callbacks=callbacks, **quiet)
    trainer.fit(module, DataLoader(images(STEPS * num), batch_size=num))
    return module.state_dict()


def main(case):
    from torch._dynamo.utils import counters

    from lit_gans.config.registry import gans
    from lit_gans.training.optim import Optimizer

    name, settings, _ = CASES[case]
    called, graphs, plain = [], [], nn.Module.compile
    nn.Module.compile = lambda module: plain(module, backend=counted(called))
    note = LambdaCallback(on_train_batch_end=lambda *_: graphs.append(counters["stats"]["unique_graphs"]))
    states = []
    for compiles in (False, True):
        optimizers = dict.fromkeys(("generator_optimizer", "discriminator_optimizer"), Optimizer("SGD", lr=0.05))
        module = gans()[name](**TINY, **settings, **optimizers, compile=compiles)
        states.append(train(module, [note] if compiles else []))
    found = {
        "difference": max(
            float((one - other).abs().max()) for one, other in zip(*map(dict.values, states), strict=True)
        ),
        "passes": len(called),
        "graph_breaks": sum(counters["graph_break"].values()),
        "graphs_after_the_first_step": graphs[-1] - graphs[0],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
