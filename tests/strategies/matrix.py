"""`python -m tests.strategies.matrix` writes the table of what each strategy trains, or refuses, into the docs.

GANs and strategies come from the registry. `test_parity.py` trains each GAN under the strategies that the table marks
by ✓.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

from lightning.pytorch.strategies import Strategy

from lit_gans.common.errors import RefusedInput
from lit_gans.config.registry import classes
from tests.gans import GANS

from .cells import Cell, build

GUIDE = Path(__file__).parents[2] / "docs/guides/distributed.md"
BEGIN, END = "<!-- strategies -->\n", "<!-- end of strategies -->\n"
VARIANTS = {"deepspeed": {"stage": (0, 1, 2, 3)}, "fsdp": {"wrap": ("network", "layer")}}  # columns of their own
PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed", "fp64": "64-true"}


def registered():
    """Returns every registered strategy of this package by its name on the command line."""
    found = classes("lit_gans.strategies", Strategy).items()
    return {n.removeprefix("network_").replace("_", ""): c for n, c in found if c.__module__.startswith("lit_gans.")}


def columns() -> dict[str, Callable[[], Strategy]]:
    """Returns a function that makes the strategy of each column of the table."""
    found = {}
    for name, cls in registered().items():
        options = VARIANTS.get(name, {})
        for values in product(*options.values()):
            settings = dict(zip(options, values, strict=True))
            title = " ".join([name, *(f"{key}={value}" for key, value in settings.items())])
            found[title] = partial(cls, **settings)
    return found


COLUMNS = columns()
STRATEGIES = {title: make() for title, make in COLUMNS.items()}


def refusal(strategy, gan, precision="32-true"):
    """Returns why a strategy does not train a GAN, or None."""
    try:
        STRATEGIES[strategy].refuse(build(Cell(gan)), precision)
    except RefusedInput as refused:
        return str(refused)
    return None


def table():
    """Returns the table and its reasons, in Markdown."""
    reasons = []

    def entry(reason):
        if reason is None:
            return "✓"
        if reason not in reasons:
            reasons.append(reason)
        return f"refused ({reasons.index(reason) + 1})"

    lines = ["| | " + " | ".join(STRATEGIES) + " |", "|---" * (len(STRATEGIES) + 1) + "|"]
    for gan in GANS:
        name = f"`{gan}`" + " with `r1_gamma`" * bool(build(Cell(gan)).r1_gamma)
        lines.append(f"| {name} | " + " | ".join(entry(refusal(strategy, gan)) for strategy in STRATEGIES) + " |")
    for name, precision in PRECISIONS.items():
        refused = (refusal(strategy, "dcgan", precision) for strategy in STRATEGIES)
        cells = [entry(reason and reason.partition(": use")[0]) for reason in refused]
        if name == "fp16":  # the scalers are tested, the training needs a device that CI has not
            cells = [cell.replace("✓", "CUDA only; not run") for cell in cells]
        lines.append(f"| precision `{name}` | " + " | ".join(cells) + " |")
    lines += ["", *(f"({number}) {reason}  " for number, reason in enumerate(reasons, 1))]
    return "\n".join(lines).rstrip() + "\n"


def written():
    """Returns the guide and where its table begins and ends."""
    text = GUIDE.read_text()
    return text, text.index(BEGIN) + len(BEGIN), text.index(END)


if __name__ == "__main__":
    text, begin, end = written()
    GUIDE.write_text(text[:begin] + table() + text[end:])
