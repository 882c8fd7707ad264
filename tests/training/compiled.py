"""`python -m tests.training.compiled CASE` trains a GAN compiled and not, in float64, and prints how they compare."""

import json
import sys

import torch
from lightning.pytorch.callbacks import LambdaCallback
from torch import nn

from lit_gans.training.optim import OptimizerConfig
from tests.tiny import fit, random_images, tiny_gan

STEPS = 3
PLAIN = dict.fromkeys(("generator_optimizer", "discriminator_optimizer"), OptimizerConfig("SGD", lr=0.05))
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


def main(case):
    from torch._dynamo.utils import counters

    name, settings, _ = CASES[case]
    called, graphs, plain = [], [], nn.Module.compile
    nn.Module.compile = lambda module: plain(module, backend=counted(called))
    note = LambdaCallback(on_train_batch_end=lambda *_: graphs.append(counters["stats"]["unique_graphs"]))
    states = []
    for compiles in (False, True):
        module = tiny_gan(name, **settings, **PLAIN, compile=compiles)
        fit(module, random_images(batch_size=4), STEPS, precision="64-true", callbacks=[note] if compiles else [])
        states.append(module.state_dict())
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
