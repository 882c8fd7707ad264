"""The table of what the examples of this folder train under each strategy, written from trainings on two ranks."""

import tempfile
from pathlib import Path

from tests.strategies import ranks

from .cells import EXAMPLES, HYBRID, PLAIN, STRATEGIES, Cell, assert_like_one_process

GUIDE = Path(__file__).parents[3] / "docs/guides/distributed.md"
BEGIN, END = "<!-- examples -->\n", "<!-- end of examples -->\n"
ROWS = {
    "LightningGAN": "Lightning's GAN example: `toggle_optimizer`",
    "Vocoder": "vocoder: one optimizer over two kinds of discriminators, feature matching",
    "Autoencoder": "KL autoencoder: perceptual loss, late discriminator, adaptive weight",
    "Distillation": "distillation: frozen teacher, average that holds the student",
    "WGANGP": "WGAN-GP: nothing frozen, each backward names its network",
}
COLUMNS = [*STRATEGIES, HYBRID]


def run():
    """Trains all cells and returns what the first rank found."""
    with tempfile.TemporaryDirectory() as folder:
        place = "tests.strategies.acceptance"
        found = ranks.run(f"{place}.cells.outcomes", Path(folder), cells=PLAIN)[0]
        cells = [Cell(example, HYBRID) for example in EXAMPLES]
        return found | ranks.run(f"{place}.test_acceptance.hybrid", Path(folder), 4, node_size=2, cells=cells)[0]


def table(found):
    """Returns the table and its reasons, in Markdown."""
    reasons = []

    def entry(cell):
        if isinstance(found[cell], str):
            if found[cell] not in reasons:
                reasons.append(found[cell])
            return f"refused ({'abcdef'[reasons.index(found[cell])]})"
        assert_like_one_process(found[cell], cell)
        return "equal"

    lines = ["| | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for example, row in ROWS.items():
        lines.append(f"| {row} | " + " | ".join(entry(Cell(example, strategy)) for strategy in COLUMNS) + " |")
    lines += ["", *(f"({letter}) {reason}  " for letter, reason in zip("abcdef", reasons, strict=False))]
    return "\n".join(lines).rstrip() + "\n"


def written():
    """Returns the entries of the guide's table: of each example and strategy."""
    text = GUIDE.read_text()
    rows = text[text.index(BEGIN) + len(BEGIN) : text.index(END)].splitlines()[2 : 2 + len(ROWS)]
    entries = [[part.strip() for part in row.strip("|").split("|")][1:] for row in rows]
    return {
        (example, strategy): entry
        for example, row in zip(ROWS, entries, strict=True)
        for strategy, entry in zip(COLUMNS, row, strict=True)
    }


def write():
    """Trains, and replaces the table of the guide."""
    text = GUIDE.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    GUIDE.write_text(text[:begin] + table(run()) + text[end:])
