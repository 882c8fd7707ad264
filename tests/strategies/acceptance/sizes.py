"""`python -m tests.strategies.acceptance.sizes` writes into the guide what each strategy sends and holds.

Two ranks train each example with Adam. Sent are the bytes of gradients that a rank hands to all-reduces, in the mean of
the iterations; held are those of parameters, gradients and optimizer states, the latter after the last iteration.
"""

import tempfile
from functools import partial
from pathlib import Path

import torch
from lightning.pytorch.strategies import DDPStrategy

from benchmarks.strategies import Counter, Memory
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP
from tests.strategies import ranks

from .cells import EXAMPLES, trained_alone

GUIDE = Path(__file__).parents[3] / "docs/explain/strategies.md"
BEGIN, END = "<!-- sizes -->\n", "<!-- end of sizes -->\n"
SENDS = {
    "ddp_find_unused_parameters_true": partial(DDPStrategy, find_unused_parameters=True),
    "network_ddp": NetworkDDP,
}
HOLDS = {
    "network_ddp": NetworkDDP,
    "network_deepspeed_stage_2": partial(NetworkDeepSpeed, stage=2),
    "network_deepspeed_stage_3": partial(NetworkDeepSpeed, stage=3),
    "network_fsdp": NetworkFSDP,
}


def train(example, strategy, callback, **arguments):
    module = EXAMPLES[example](**arguments)
    trainer = ranks.quiet_trainer(max_epochs=1, devices=2, strategy=strategy(), callbacks=[callback])
    try:
        trainer.fit(module)
    except (RefusedInput, RuntimeError) as error:
        return str(error)
    return module


def sent(example, strategy):
    """Returns the bytes of gradients in an iteration, and whether the weights are those of one process."""
    counter, all_reduce = Counter(), torch.distributed.all_reduce
    module = train(example, strategy, counter)
    torch.distributed.all_reduce = all_reduce  # also after an error
    if isinstance(module, str):
        return module
    alone = trained_alone(example, 1, None, False)
    off = max((value - alone[name]).abs().max().item() for name, value in module.state_dict().items())
    return sum(counter.gradients) / len(counter.gradients), off <= 1e-6


def held(example, strategy):
    """Returns the bytes that this rank holds, or None where the strategy refuses the example."""
    memory = Memory()
    module = train(example, strategy, memory, adam=True)
    return None if isinstance(module, str) else sum(memory.held.values())


def on_a_rank():
    return {
        example: ([sent(example, each) for each in SENDS.values()], [held(example, each) for each in HOLDS.values()])
        for example in EXAMPLES
    }


def entry(one):
    if isinstance(one, str):
        return "an error"
    return f"{one[0]:,.0f}" + ("" if one[1] else ", other weights")


def table():
    """Returns the table in Markdown: of what is held, the larger of the two ranks."""
    with tempfile.TemporaryDirectory() as folder:
        found = ranks.run("tests.strategies.acceptance.sizes.on_a_rank", Path(folder))
    heads = [*(f"sent by `{name}`" for name in SENDS), *(f"held under `{name}`" for name in HOLDS)]
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for example in EXAMPLES:
        sends = [entry(one) for one in found[0][example][0]]
        pairs = zip(*(rank[example][1] for rank in found), strict=True)
        holds = ["refused" if None in pair else f"{max(pair):,}" for pair in pairs]
        lines.append(f"| {example} | " + " | ".join([*sends, *holds]) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text, new = GUIDE.read_text(), table()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    GUIDE.write_text(text[:begin] + new + text[end:])
