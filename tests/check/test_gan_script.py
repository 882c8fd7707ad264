"""A script with plain torch on two processes: each planted fault is found by its name, the right versions have none."""

import runpy
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from lit_gans.check import check_ranks
from tests.strategies import ranks

SCRIPT = Path(__file__).with_name("gan_script.py")
RIGHT = ("none", "by_hand", "equal_images")
FAULTS = (
    "weights_never_equal",
    "gradients_summed",
    "gradients_averaged_twice",
    "gradients_not_averaged",
    "gradients_differ",
    "factor_of_each_rank",
    "steps_of_some_ranks",
    "order_of_steps",
    "same_random_numbers",
    "buffers_differ",
    "averages_differ",
    "same_inputs",
    "shared_inputs",
    "stale_gradients",
)
CONSEQUENCES = {  # further kinds that a fault brings with it
    "steps_of_some_ranks": {"order_of_steps", "averages_differ"},
    "same_random_numbers": {"same_inputs"},
    "weights_never_equal": {"averages_differ"},
}
NOTES = {  # number of notes
    "local_statistics": 1,
    "never_a_gradient": 2,
    "synchronizes_each_microbatch": 1,
    "counters_differ": 1,
}

pytestmark = pytest.mark.ranks


def findings(case):
    """Runs a case of the script and returns what this rank has found."""
    torch.set_num_threads(1)
    with patch.object(sys, "argv", [str(SCRIPT), case, "6"]), check_ranks() as check:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    return [asdict(finding) | {"is_fault": finding.is_fault} for finding in check.findings]


@pytest.fixture
def found(tmp_path):
    return lambda case: ranks.run(f"{__name__}.findings", tmp_path, case=case)[0]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_by_its_name(found, fault):
    findings = found(fault)
    kinds = {finding["kind"] for finding in findings if finding["is_fault"]}
    assert kinds == {fault} | CONSEQUENCES.get(fault, set())
    (first, *_) = (finding for finding in findings if finding["kind"] == fault)
    assert first["remedy"].endswith(".")


@pytest.mark.parametrize("note", NOTES)
def test_what_is_legal_is_noted_and_no_fault(found, note):
    assert [(finding["kind"], finding["is_fault"]) for finding in found(note)] == [(note, False)] * NOTES[note]


def test_an_average_that_is_right_on_rank_0_is_noted_and_no_fault(found):
    """It was copied before DistributedDataParallel broadcast the weights of rank 0."""
    (note,) = found("copied_before_broadcast")
    assert (note["kind"], note["is_fault"]) == ("averages_differ", False)
    assert "use only the copy on rank 0" in note["what"]


@pytest.mark.parametrize("case", RIGHT)
def test_the_right_versions_have_no_findings(found, case):
    assert found(case) == []


def test_gradients_that_are_not_averaged_have_the_line_of_their_backward_pass(found):
    (finding,) = found("gradients_not_averaged")
    path, _, number = finding["line"].rpartition(":")
    assert Path(path) == SCRIPT
    assert SCRIPT.read_text().splitlines()[int(number) - 1].strip() == "(loss / pieces).backward()"
    assert "discriminator (Discriminator)" in finding["where"]
    assert "4 of 4 parameters, first layers.0.weight" in finding["what"]


WAITS = """
import os, time
import torch

generator, discriminator = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
if os.environ["RANK"] == "1":
    optimizer = torch.optim.SGD(discriminator.parameters(), lr=0.1)
    discriminator(torch.ones(2, 4)).sum().backward()
else:
    optimizer = torch.optim.SGD(generator.parameters(), lr=0.1)
    generator(torch.ones(2, 4)).sum().backward()
optimizer.step()
time.sleep(600)
"""


def test_ranks_that_wait_for_each_other_end_with_the_reason(tmp_path):
    script = tmp_path / "waits.py"
    script.write_text(WAITS)
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "lit_gans.check"]
    command += ["--patience", "2", str(script)]
    ran = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1
    assert "FAULT order_of_steps" in ran.stdout
    assert "the ranks wait for each other: ended" in ran.stdout


def test_a_missing_script_and_a_failing_script_are_errors(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m"]
    missing = subprocess.run([*command, "lit_gans.check", "nothing.py"], capture_output=True, text=True, timeout=120)
    assert missing.returncode == 1
    assert "there is no file nothing.py" in missing.stderr
    script = tmp_path / "fails.py"
    script.write_text("raise ValueError('of the script')")
    failed = subprocess.run([*command, "lit_gans.check", str(script)], capture_output=True, text=True, timeout=120)
    assert failed.returncode == 1
    assert "ValueError: of the script" in failed.stderr
    assert "SIGABRT" not in failed.stderr


@pytest.mark.parametrize(("case", "code"), [("none", 0), ("gradients_not_averaged", 1)])
def test_the_command_prints_a_verdict_and_ends_with_a_code(case, code):
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "lit_gans.check"]
    ran = subprocess.run([sys.executable, *command, str(SCRIPT), case], capture_output=True, text=True, timeout=120)
    assert ran.returncode == code, ran.stderr
    verdict = "2 ranks do not train what a single process would train: 1 faults" if code else "2 ranks train one model"
    assert f"lit_gans.check: {verdict}" in ran.stdout
    assert ran.stdout.count("FAULT") == code
