"""DeepSpeed's private parts are still there, and still needed: what trainings need is found where it was."""

import inspect

import pytest

from lit_gans.common._compat import deepspeed as _compat

pytest.importorskip("deepspeed")


def test_only_the_forward_of_an_engine_prepares_its_backward():
    from deepspeed.runtime import engine

    assert "def _backward_prologue(self)" in inspect.getsource(engine)
    assert inspect.getsource(engine).count("self._backward_prologue()") == 1


def test_states_of_an_optimizer_are_linked_only_where_deepspeed_reads_its_own_checkpoints():
    from deepspeed.runtime.zero import stage_1_and_2

    assert inspect.getsource(stage_1_and_2).count("self._lazy_init_hp_params_optimizer_state()") == 1


def test_operations_to_compile_are_known_under_a_private_name():
    import deepspeed

    known = deepspeed.ops.__compatible_ops__
    try:
        _compat.forbid_compiled_operations(deepspeed)
        assert deepspeed.ops.__compatible_ops__ == {}
    finally:
        deepspeed.ops.__compatible_ops__ = known
