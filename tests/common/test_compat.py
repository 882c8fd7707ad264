"""Each private API in `_compat` has an upstream issue, its version, and a test that fails once it is needless."""

import ast
import re
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version

from lit_gans.common import _compat
from tests.common.bounds import BOUNDED

FOLDER, TESTS = Path(_compat.__file__).parent, Path(__file__).parent
PACKAGES = {
    "torch": "torch",
    "lightning": "lightning",
    "deepspeed": "deepspeed",
    "hydra": "hydra-core",
    "jsonargparse": "jsonargparse",
    "torchmetrics": "torchmetrics",
}
# the test of `test_compat_LIBRARY.py` that fails once an entry is needless, or its private API gone
NEEDLESS = {
    "torch": {
        "NormBase": "test_norms_with_running_statistics_have_no_public_base",
        "TorchDispatchMode": "test_operators_are_seen_only_with_a_private_class",
        "WITHOUT_BUFFER_SYNC": "test_older_versions_of_torch_lack_the_new_names",
        "copy_all": "test_older_versions_of_torch_lack_the_new_names",
        "begin_backward": "test_fsdp_declares_methods_only",
        "begin_forward": "test_fsdp_declares_methods_only",
        "end_forward": "test_fsdp_declares_methods_only",
        "is_computing": "test_fsdp_declares_methods_only",
        "reduces_all": "test_torch_says_in_the_next_backward_that_ddp_has_not_reduced",
        "is_compiled": "test_a_module_does_not_say_that_it_is_compiled",
        "default_store": "test_torch_has_no_public_store",
        "lerp_all": "test_older_versions_of_torch_lack_the_new_names",
        "norm_all": "test_older_versions_of_torch_lack_the_new_names",
        "process_groups": "test_torch_lists_no_process_groups",
        "scale_of": "test_the_public_scale_is_a_number",
        "set_timeout": "test_older_versions_of_torch_lack_the_new_names",
        "tree_leaves": "test_torch_has_no_public_walk_over_outputs",
        "version_of": "test_a_tensor_has_no_public_count_of_its_changes",
    },
    "lightning": {
        "CommandLauncher": "test_lightning_still_starts_others_with_sys_argv",
        "KeepsGivenSettings": "test_the_command_line_still_trains_with_the_settings_of_a_checkpoint",
        "cluster_environment": "test_a_trainer_has_no_public_cluster_environment",
        "children": "test_lightnings_launcher_waits_for_no_process_that_it_ends",
        "finds_unused_parameters": "test_lightning_keeps_the_arguments_of_ddp_private",
        "process_group_backend": "test_lightning_knows_its_backend_only_once_the_group_exists",
        "row_of_iteration": "test_loggers_receive_a_row_after_the_last_hook_of_the_iteration",
        "start_others_with": "test_lightning_still_starts_others_with_sys_argv",
        "synchronizes_batch_norm": "test_only_the_strategy_knows_of_synchronized_batch_norm",
        "use_by_default": "test_a_strategy_does_not_say_whether_a_plugin_was_chosen",
    },
    "deepspeed": {
        "backward_into": "test_an_engine_restricts_a_backward_to_no_parameters",
        "stays_gathered": "test_only_small_parameters_stay_gathered",
        "flat_groups": "test_the_torch_optimizer_no_longer_has_the_parameters",
        "gather_small": "test_small_parameters_have_no_public_name",
        "forbid_compiled_operations": "test_deepspeed_compiles_what_it_knows_as_compatible",
        "link_optimizer_states": "test_states_cannot_be_set_before_the_first_step",
        "prepare_backward": "test_backward_after_the_forward_of_the_plain_network_is_wrong",
        "stored_gradients": "test_gradients_are_not_those_of_the_parameters",
        "zero3_free": "test_small_parameters_have_no_public_name",
        "zero3_shape": "test_a_sharded_parameter_has_no_shape",
        "zero3_shard": "test_a_frozen_parameter_has_no_public_shard",
    },
    "hydra": {"run_hydra": "test_hydra_still_takes_no_arguments"},
    "jsonargparse": {
        "descriptions": "test_jsonargparse_still_lists_inherited_descriptions_in_a_private_attribute",
        "other_class_other_arguments": "test_jsonargparse_still_hands_the_arguments_of_a_replaced_class_on",
    },
    "torchmetrics": {"lpips": "test_the_public_lpips_takes_no_weights"},
}


def test_every_library_has_a_module():
    assert {path.stem for path in FOLDER.glob("*.py")} - {"__init__"} == NEEDLESS.keys() == PACKAGES.keys()


@pytest.mark.parametrize("library", NEEDLESS)
def test_every_entry_has_a_test(library):
    module = import_module(f"lit_gans.common._compat.{library}")
    nodes = ast.parse(Path(module.__file__).read_text()).body
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    entries = {*vars(module).get("__all__", defined)}
    assert defined <= entries == NEEDLESS[library].keys()
    tests = ast.parse((TESTS / f"test_compat_{library}.py").read_text()).body
    assert {*NEEDLESS[library].values()} <= {test.name for test in tests if isinstance(test, ast.FunctionDef)}


@pytest.mark.parametrize("library", NEEDLESS)
def test_every_entry_names_an_upstream_issue(library):
    module = import_module(f"lit_gans.common._compat.{library}")
    text = Path(module.__file__).read_text()
    for node in (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)):
        doc = ast.get_docstring(node)
        assert re.search(r"https://github.com/\S+/(issues|pull)/\d+|No issue\s+found", doc) or "see `" in doc, node.name


@pytest.mark.parametrize("library", NEEDLESS)
def test_the_bounds_allow_what_is_tested(library):
    bounds = BOUNDED[PACKAGES[library]]
    assert Version(version(PACKAGES[library])).base_version in bounds
    doc = import_module(f"lit_gans.common._compat.{library}").__doc__
    assert re.search(rf"Checked with {PACKAGES[library]} ([\d.]+\d)\.", doc)[1] in bounds
