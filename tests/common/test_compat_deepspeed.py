"""DeepSpeed's private APIs are still there, and still needed."""

import inspect
from functools import partial
from importlib import import_module

import pytest
import torch
from torch import nn

from lit_gans.common._compat import deepspeed as _compat
from tests.strategies import ranks

pytestmark = pytest.mark.ranks

deepspeed = pytest.importorskip("deepspeed")

STAGES, RANKS = [1, 2, 3], 2
INPUTS = torch.linspace(-1, 1, 12).view(4, 3)


def network():
    torch.manual_seed(0)
    layer = nn.Linear(3, 5)  # whose weight and bias have odd sizes: two ranks pad them
    return layer, torch.optim.Adam(layer.parameters(), lr=0.1)


def engine_of(stage, threshold=0, **settings):
    layer, optimizer = network()
    zero = {"stage": stage, "reduce_bucket_size": 20, "allgather_bucket_size": 20}
    if stage == 3:  # by default, layers as small as this stay unsharded
        zero |= {"stage3_prefetch_bucket_size": 20, "stage3_param_persistence_threshold": threshold}
    fixed = {"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True}
    config = {**fixed, "zero_force_ds_cpu_optimizer": False, "zero_optimization": zero, **settings}
    return layer, optimizer, deepspeed.initialize(model=layer, optimizer=optimizer, config=config)[0]


def losses(layer):
    """Yields the loss of each microbatch of two iterations."""
    for number, inputs in enumerate([*INPUTS.split(2)] * 2):
        yield number % 2, layer(inputs).square().mean() if number % 2 else layer(inputs).exp().mean()


def trained(stage, prepare, **settings):
    """Returns the weight after two iterations, or the error that ends them."""
    layer, _, engine = engine_of(stage, **settings)
    try:
        for last, loss in losses(layer):
            engine.set_gradient_accumulation_boundary(bool(last))
            prepare(engine, loss)
            engine.backward(loss, scale_wrt_gas=False)
            if last:
                engine.step()
    except AssertionError as error:
        return str(error)
    with deepspeed.zero.GatheredParameters([*layer.parameters()], enabled=stage == 3):
        return layer.weight.detach().clone()


def nothing(engine, loss):
    """As a forward of the plain network leaves an engine."""


def optimizer_seen(stage):
    """What the public and private ways show of a new engine's optimizer."""
    from deepspeed.utils import safe_get_full_optimizer_state, safe_set_full_optimizer_state

    layer, optimizer, engine = engine_of(stage)
    own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    ((parameters, flat),) = _compat.flat_groups(engine, stage)
    optimizer.state[flat] = {"exp_avg": torch.zeros_like(flat)}
    seen = {
        "own": own & {*map(id, layer.parameters())},
        "same": [*map(id, parameters)] == [*map(id, layer.parameters())],
        "flat": flat.numel(),
    }
    if stage < 3:

        def state():
            try:
                safe_set_full_optimizer_state(layer.weight, torch.ones(5, 3), "exp_avg")
                return safe_get_full_optimizer_state(layer.weight, "exp_avg")
            except TypeError as error:
                return str(error)

        seen["unlinked"] = state()
        _compat.link_optimizer_states(engine)
        seen["linked"] = state()
    return seen


def parameters_seen(stage):
    """What the public and private ways show of parameters after a backward."""
    from deepspeed.utils import safe_get_local_fp32_param

    layer, _, engine = engine_of(stage)
    loss = layer(INPUTS).sum()
    _compat.prepare_backward(engine, loss)
    engine.backward(loss)
    own = [parameter.grad for parameter in layer.parameters()]
    seen = {"own": own, "stored": sum(tensor.numel() for tensor in _compat.stored_gradients(engine, stage))}
    if stage == 3:
        layer.requires_grad_(False)
        seen |= {"shard": _compat.zero3_shard(layer.weight).clone(), "public": safe_get_local_fp32_param(layer.weight)}
        seen |= {"shape": _compat.zero3_shape(layer.weight), "own shape": layer.weight.shape}
        seen["versions"] = [_compat.zero3_version(layer.weight)]
        engine.step()
        layer(INPUTS)
        seen["versions"].append(_compat.zero3_version(layer.weight))
        with torch.no_grad():
            layer.weight.add_(1.0)
        seen["versions"].append(_compat.zero3_version(layer.weight))
        small = engine_of(3, threshold=100)[0].weight
        seen["stays"] = [_compat.stays_gathered(weight) for weight in (layer.weight, small)]
        engine = engine_of(3, threshold=100)[2]
        seen["sizes"] = [engine.module.weight.numel()]
        _compat.gather_small(engine)
        seen["sizes"].append(engine.module.weight.numel())
        _compat.zero3_free(engine.module.weight)
        seen["sizes"].append(engine.module.weight.numel())
    return seen


def changed(stage):
    """What a step makes of parameters that were changed before it."""
    seen = {}
    for name, read in (("unread", lambda _: None), ("read", _compat.read_parameters)):
        layer, _, engine = engine_of(stage)
        layer.weight.data.fill_(7.0)
        loss = layer(INPUTS).sum()
        _compat.prepare_backward(engine, loss)
        engine.backward(loss)
        read(engine)
        engine.step()
        seen[name] = layer.weight.detach().mean().item()
    return seen


def clipped(stage):
    """What a new engine's optimizer clips to after each call, and whether that differs from its configuration."""
    engine = engine_of(stage, gradient_clipping=2.0)[2]
    seen = []
    for max_norm in (3.0, 1.0, None):
        _compat.clip_next_step(engine, max_norm)
        seen.append((engine.optimizer.clip_grad, _compat.clips_next_step(engine)))
    return seen


def on_a_rank():
    _compat.forbid_compiled_operations(deepspeed)
    timed = {"wall_clock_breakdown": True}
    clear = lambda engine, loss: engine.optimizer.clear_backward_seen_flag()  # noqa: E731
    return {
        "prepared": {stage: trained(stage, _compat.prepare_backward, **timed) for stage in STAGES},
        "unprepared": trained(3, nothing),
        "timed": {stage: trained(stage, clear, **timed) for stage in STAGES},
        "optimizer": {stage: optimizer_seen(stage) for stage in STAGES},
        "parameters": {stage: parameters_seen(stage) for stage in STAGES},
        "changed": {stage: changed(stage) for stage in (1, 2)},
        "clipped": {stage: clipped(stage) for stage in STAGES},
    }


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    path = "tests.common.test_compat_deepspeed.on_a_rank"
    return ranks.run(path, tmp_path_factory.mktemp("compat"), world_size=RANKS)


def test_backward_after_the_forward_of_the_plain_network_is_wrong(seen):
    layer, optimizer = network()
    for last, loss in losses(layer):
        loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    close = partial(torch.allclose, layer.weight, atol=1e-6)
    for rank in seen:
        assert all(close(weight) for weight in rank["prepared"].values())
        assert not close(rank["unprepared"]), "clear_backward_seen_flag is needless"
        assert {*rank["timed"].values()} == {"timer is not started"}, "_backward_prologue is needless"


@pytest.mark.parametrize("stage", STAGES)
def test_the_torch_optimizer_no_longer_has_the_parameters_and_their_states_cannot_be_set(seen, stage):
    for found in (rank["optimizer"][stage] for rank in seen):
        assert (found["own"], found["same"]) == (set(), True)
        assert found["flat"] >= 10  # half of 20 elements, perhaps padded
        if stage < 3:
            assert "NoneType" in found["unlinked"], "before the first step"
            assert torch.equal(found["linked"], torch.ones(5, 3))


@pytest.mark.parametrize("stage", STAGES)
def test_gradients_are_not_those_of_the_parameters(seen, stage):
    for found in (rank["parameters"][stage] for rank in seen):
        assert found["own"] == [None, None]
        assert found["stored"] >= 10


@pytest.mark.parametrize("stage", [1, 2])
def test_a_step_undoes_changes_that_the_engine_has_not_read(seen, stage):
    for found in (rank["changed"][stage] for rank in seen):
        assert abs(found["unread"]) < 2, "read_parameters is needless"
        assert abs(found["read"] - 7) < 1


@pytest.mark.parametrize("stage", STAGES)
def test_the_norm_of_one_step_has_no_public_setting(seen, stage):
    for found in (rank["clipped"][stage] for rank in seen):
        assert found == [(2.0, False), (1.0, True), (2.0, False)]
    assert not hasattr(deepspeed.DeepSpeedEngine, "set_gradient_clipping"), "clip_next_step is needless"


def test_the_public_zero_grad_cannot_keep_tensors():
    known = inspect.signature(deepspeed.DeepSpeedEngine.zero_grad).parameters
    assert "set_to_none" not in known, "clear_gradients is needless"


def test_a_sharded_parameter_has_no_shape_and_a_frozen_one_no_public_shard(seen):
    weight = network()[0].weight.detach().flatten()
    first, last = found = [rank["parameters"][3] for rank in seen]
    assert torch.equal(first["shard"], weight[:8])
    assert torch.equal(last["shard"][:7], weight[8:])
    assert len(last["shard"]) == 8
    for each in found:
        assert each["public"] is None
        assert each["own shape"] != (5, 3) == each["shape"]
        assert each["stays"] == [False, True]
        assert each["sizes"] == [0, 15, 0], "gathered by the first forward only"
        start, stepped, changed = each["versions"]
        assert start == stepped == changed - 1


def test_deepspeed_compiles_what_it_knows_as_compatible(monkeypatch):
    """On a CPU, it asks for one at the start."""
    backend = import_module("deepspeed.comm.torch")

    class Builder:
        NAME = "of a test"

        def load(self):
            raise InterruptedError("this would compile")

        def create_op_builder(self, name):
            return self

    monkeypatch.setattr(backend, "get_accelerator", Builder)
    monkeypatch.setattr(deepspeed.ops, "__compatible_ops__", {Builder.NAME: True}, raising=False)
    with pytest.raises(InterruptedError):
        backend.build_shm_op()
    _compat.forbid_compiled_operations(deepspeed)
    assert backend.build_shm_op() is None


def test_an_engine_restricts_a_backward_to_no_parameters():
    """`backward_into` can go once its `backward` takes inputs."""
    from deepspeed.runtime import engine

    assert "def backward(self, loss, retain_graph=False, scale_wrt_gas=True)" in inspect.getsource(engine)
    assert "def _backward_epilogue(self)" in inspect.getsource(engine)
