"""`python -m tests.strategies.foreign.table NAME ...` writes rows of the guide: how files of this folder train."""

import importlib
import inspect
import sys
import tempfile
from pathlib import Path

from tests.strategies import ranks
from tests.strategies.foreign.train import DEEPSPEED, FOREIGN, STOCK, TRAIN, difference

GUIDE = Path(__file__).parents[3] / "docs/explain/strategies.md"
BEGIN, END = "<!-- foreign -->\n", "<!-- end of foreign -->\n"
HEADS = ("", "lines", "off: `network_ddp`", "off: `network_fsdp`", "off: `network_deepspeed_stage_2`")
HEADS += (f"sent: `{STOCK}`", "sent: `network_ddp`", "held: `network_ddp`", "held: `network_fsdp`")


def lines(name):
    """Returns the number of lines of the class that ports a module."""
    ported = importlib.import_module(f"{__package__}.{name}").Ported
    return sum(bool(line.strip()) for line in inspect.getsource(ported).splitlines())


def row(name, folder):
    """Trains a module, and returns its row."""
    [exact] = ranks.run(TRAIN, folder, 1, name=name, strategies=("auto",), exact=True)
    [single] = ranks.run(TRAIN, folder, 1, name=name, strategies=("auto",), exact=False)
    strategies = ("network_ddp", "network_fsdp", STOCK)
    of_ranks = ranks.run(TRAIN, folder, name=name, strategies=strategies, exact=True)
    [deepspeed, _] = ranks.run(TRAIN, folder, name=name, strategies=(DEEPSPEED,), exact=False)
    found = of_ranks[0]
    held = [max(rank[strategy]["held"] for rank in of_ranks) for strategy in strategies[:2]]
    off = [difference(found[strategy], exact["auto"]) for strategy in strategies[:2]]
    off.append(difference(deepspeed[DEEPSPEED], single["auto"]))
    sizes = [found[STOCK]["sent"], found["network_ddp"]["sent"], *held]
    entries = [
        FOREIGN[name][1],
        str(lines(name)),
        *(f"{each:.0e}" for each in off),
        *(f"{each / 1e3:,.0f}" for each in sizes),
    ]
    return f"| {' | '.join(entries)} |"


def main(names):
    before, _, rest = GUIDE.read_text().partition(BEGIN)
    table, _, after = rest.partition(END)
    rows = {line.split(" | ")[0]: line for line in table.splitlines()[2:]}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            rows[f"| {FOREIGN[name][1]}"] = row(name, Path(folder))
        written = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|", *rows.values()]
        GUIDE.write_text(before + BEGIN + "\n".join(written) + "\n" + END + after)


if __name__ == "__main__":
    main(sys.argv[1:])
