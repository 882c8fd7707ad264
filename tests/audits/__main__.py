"""`python -m tests.audits NAME CHECKOUTS [--repaired]`: runs a public trainer on two CPU processes and on one.

CHECKOUTS is a folder with the repository of each project, in the subfolder that its driver names.
docs/explain/audit.md lists commits and results. Prints the findings of `lit_gans.check` on two processes, and the
distance of their weights from the weights of one process with the concatenated batch.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

FOLDER = Path(__file__).parent
_SHARED = {"common", "lightning1", "lightning2", "nvlabs", "test_audits"}  # modules that are not drivers
DRIVERS = sorted({path.stem for path in FOLDER.glob("[a-z]*.py")} - _SHARED)


def launch(name: str, checkouts: str, out: str, processes: int, repaired: bool = False, timeout: float = 600.0) -> str:
    """Runs a driver, and returns its output. With several processes, the driver runs inside `lit_gans.check`."""
    check = ["-m", "lit_gans.check", "--patience", "60"] if processes > 1 else []
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    variables = {"AUDIT_CHECKOUTS": checkouts, "AUDIT_OUT": out, "AUDIT_REPAIRED": "1" if repaired else ""}
    variables |= {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{FOLDER.parents[1]}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "CUDA_VISIBLE_DEVICES": "",
    }
    ran = subprocess.run(
        [*command, *check, str(FOLDER / f"{name}.py")],
        env=os.environ | variables,
        cwd=out,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
    return ran.stdout


def differences(out: str) -> Iterator[tuple[str, float, float]]:
    """Yields each network, the distance of its weights from one process, and their distance between two processes.

    Distances are relative to the distance that one process moved the weights.
    """
    alone = torch.load(Path(out, "1_0.pt"))
    first, second = (torch.load(Path(out, f"2_{rank}.pt")) for rank in range(2))
    for network, (before, after) in alone.items():
        starts = distance(first[network][0], before)
        if starts:
            raise ValueError(f"{network}: rank 0 begins with other weights than one process: {starts}")
        moved = distance(after, before)
        ours, theirs = first[network][1], second[network][1]
        yield network, distance(ours, after) / moved, distance(ours, theirs) / moved


def distance(some: list[torch.Tensor], others: list[torch.Tensor]) -> float:
    """Returns the Euclidean distance between two lists of weights."""
    return float(sum((one - other).square().sum() for one, other in zip(some, others, strict=True)) ** 0.5)


def audit(name: str, checkouts: str, repaired: bool = False) -> tuple[list[str], list[tuple[str, float, float]]]:
    """Returns the lines of the check, and the differences of the weights."""
    with tempfile.TemporaryDirectory() as out:
        printed = launch(name, checkouts, out, 2, repaired)
        printed_alone = launch(name, checkouts, out, 1, repaired)
        if not Path(out, "2_0.pt").exists() or not Path(out, "1_0.pt").exists():
            raise RuntimeError(f"{printed[-6000:]}\n---- one process ----\n{printed_alone[-6000:]}")
        lines = re.findall(r"lit_gans\.check: .*", printed)  # the first one can follow a progress bar on its line
        return lines, [*differences(out)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser("tests.audits")
    parser.add_argument("name", choices=DRIVERS)
    parser.add_argument("checkouts")
    parser.add_argument("--repaired", action="store_true", help="apply the repair from docs/explain/audit.md")
    lines, found = audit(**vars(parser.parse_args()))
    print(*lines, sep="\n")
    for network, off, apart in found:
        print(f"{network}: {off:.1e} relative distance from one process, {apart:.1e} between the two processes")
