"""`python -m tests.strategies.matrix` writes the README's table of what each strategy trains, or refuses and why.

What it says works is trained by the tests beside this file, and what it says is refused is refused there.
"""

from pathlib import Path

from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP

from .cells import Cell, build, names

README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- strategies -->\n", "<!-- end of strategies -->\n"
STRATEGIES = {
    "ddp": NetworkDDP(),
    **{f"deepspeed stage {stage}": NetworkDeepSpeed(stage=stage) for stage in (0, 1, 2, 3)},
    **{f"fsdp per {wrap}": NetworkFSDP(wrap=wrap) for wrap in ("network", "layer")},
}
PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed", "fp64": "64-true"}


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
            return "works"
        if reason not in reasons:
            reasons.append(reason)
        return f"refused ({reasons.index(reason) + 1})"

    lines = ["| | " + " | ".join(STRATEGIES) + " |", "|---" * (len(STRATEGIES) + 1) + "|"]
    for gan in names():
        name = f"`{gan}`" + " with `r1_gamma`" * bool(build(Cell(gan)).r1_gamma)
        lines.append(f"| {name} | " + " | ".join(entry(refusal(strategy, gan)) for strategy in STRATEGIES) + " |")
    for name, precision in PRECISIONS.items():
        cells = [entry(refusal(strategy, "dcgan", precision)) for strategy in STRATEGIES]
        if name == "fp16":  # the scalers are tested, the training needs a device that CI has not
            cells = [cell.replace("works", "CUDA only; not run") for cell in cells]
        lines.append(f"| precision `{name}` | " + " | ".join(cells) + " |")
    lines += ["", *(f"({number}) {reason}  " for number, reason in enumerate(reasons, 1))]
    return "\n".join(lines).rstrip() + "\n"


def written():
    """Returns the README and where its table begins and ends."""
    text = README.read_text()
    return text, text.index(BEGIN) + len(BEGIN), text.index(END)


if __name__ == "__main__":
    text, begin, end = written()
    README.write_text(text[:begin] + table() + text[end:])
