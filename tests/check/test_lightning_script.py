"""Scripts with Lightning's strategies, ours, and Fabric: none has a fault that was not planted."""

import runpy
import sys
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from lit_gans.check import check_ranks
from tests.strategies import ranks

SCRIPT = Path(__file__).with_name("lightning_script.py")
SHARDED = ("network_fsdp", "network_deepspeed_stage_2")

pytestmark = pytest.mark.ranks


def findings(name, planted=""):
    """Runs the script and returns what this rank has found, the watched steps, and the report."""
    torch.set_num_threads(1)
    with patch.object(sys, "argv", [str(SCRIPT), name, planted]), check_ranks() as check:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    return [asdict(finding) for finding in check.findings], check.watched, check.report()


@pytest.mark.parametrize("name", ["fabric", "ddp_find_unused_parameters_true", "network_ddp", *SHARDED])
def test_right_scripts_have_no_fault_and_shards_are_named(tmp_path, name):
    found, watched, report = ranks.run(f"{__name__}.findings", tmp_path, name=name)[0]
    assert [*watched.values()] == [6, 6]
    assert [finding["kind"] for finding in found] == (["skipped", "skipped"] if name in SHARDED else [])
    verdict = "2 ranks show no fault in what could be compared" if name in SHARDED else "2 ranks train one model"
    assert verdict in report
    if name not in SHARDED[1:]:
        assert all("discriminator" in first or "generator" in first for first in watched)


def test_a_network_that_fabric_has_not_wrapped_is_found(tmp_path):
    found, *_ = ranks.run(f"{__name__}.findings", tmp_path, name="fabric_unwrapped")[0]
    assert [finding["kind"] for finding in found] == ["gradients_not_averaged"]
    assert "discriminator" in found[0]["where"]


@pytest.mark.parametrize(
    ("planted", "kinds", "where", "remedy"),
    [
        ("equal_batches", ["same_inputs"], "GAN", "Shard the data"),
        ("in_a_list", ["gradients_not_averaged"], "hidden[0] (Sequential)", "nn.ModuleList instead of a list"),
        ("plain_backward", ["gradients_not_averaged"], "GAN", "Call self.manual_backward"),
    ],
)
def test_a_fault_in_a_module_that_lightning_wraps_is_found_with_its_remedy(tmp_path, planted, kinds, where, remedy):
    name = "ddp_find_unused_parameters_true"
    found, *_ = ranks.run(f"{__name__}.findings", tmp_path, name=name, planted=planted)[0]
    assert [finding["kind"] for finding in found] == kinds
    assert where in found[0]["where"]
    assert remedy in found[0]["remedy"]
