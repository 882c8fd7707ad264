"""Recording changes nothing, needs torch alone, and ends with the watched steps."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn.modules import module as hooks_of_modules
from torch.optim import optimizer as hooks_of_optimizers
from torch.utils.checkpoint import checkpoint

from lit_gans.check import check_ranks
from lit_gans.check.recorder import Recorder


def train(num_steps):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(network.parameters())
    for _ in range(num_steps):
        optimizer.zero_grad()
        network(torch.randn(6, 4)).square().mean().backward()
        optimizer.step()
    return network, torch.get_rng_state()


def test_weights_and_random_numbers_are_the_same_to_the_last_bit():
    plain, state = train(5)
    with check_ranks(steps=3):
        checked, checked_state = train(5)
    torch.testing.assert_close(checked.state_dict(), plain.state_dict(), rtol=0, atol=0)
    assert torch.equal(checked_state, state)


def hooks():
    return [
        len(each)
        for each in (
            hooks_of_modules._global_forward_pre_hooks,
            hooks_of_modules._global_forward_hooks,
            hooks_of_optimizers._global_optimizer_pre_hooks,
            hooks_of_optimizers._global_optimizer_post_hooks,
        )
    ]


def test_only_the_hooks_of_optimizers_remain_after_the_watched_steps_and_none_at_the_end():
    before, backward = hooks(), torch.autograd.backward
    with check_ranks(steps=2):
        watching = hooks()
        assert torch.autograd.backward is not backward
        network, _ = train(3)
        resting = hooks()
        assert torch.autograd.backward is backward
    assert [now - then for now, then in zip(watching, before, strict=True)] == [1, 1, 1, 1]
    assert [now - then for now, then in zip(resting, before, strict=True)] == [0, 0, 1, 1]
    assert hooks() == before
    assert not any(parameter._backward_hooks for parameter in network.parameters())


def test_an_error_of_the_check_ends_the_check_and_not_the_script():
    def broken(name, record):
        raise ValueError("no room")

    recorder = Recorder(5, broken, lambda name: None)
    train(3)
    assert recorder.error == "ValueError: no room"
    recorder.close()


def test_records_have_the_local_gradients_and_the_line():
    records = {}
    recorder = Recorder(2, records.__setitem__, lambda name: None)
    train(2)
    recorder.close()
    step = records["step/Adam of network (Sequential)/2"]
    assert step.line.startswith(f"{__file__}:")
    names = [weight.name for weight in step.weights]
    assert names[:2] == ["0.weight of network (Sequential)", "0.bias of network (Sequential)"]
    for weight in step.weights:
        assert weight.local == pytest.approx(weight.gradient, abs=1e-6 * weight.norm)
        assert weight.backwards == [1]
        assert weight.before != weight.after


def test_nothing_grows_after_the_watched_steps():
    recorder = Recorder(2, lambda name, record: None, lambda name: None)
    train(6)
    recorder.close()
    assert recorder.numbers == {"Adam of network (Sequential)": 6}
    assert len(recorder._stepped_at["Adam of network (Sequential)"]) == 2


def test_a_single_process_has_nothing_to_compare():
    with check_ranks() as check:
        train(1)
    assert check.findings == []
    assert "there is one process" in check.report()


ALONE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"lightning", "pytorch_lightning", "torchmetrics", "torchvision", "hydra"}:
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
import lit_gans.check
"""


def test_it_needs_torch_alone():
    subprocess.run([sys.executable, "-c", ALONE], check=True, capture_output=True, timeout=60)


def recorded(function, steps=5):
    """Returns the records of a function."""
    records = {}
    recorder = Recorder(steps, records.__setitem__, lambda name: None)
    try:
        function()
    finally:
        recorder.close()
    assert recorder.error == ""
    return records


def step_of(networks):
    for network in networks:
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        network(torch.ones(2, 4)).mean().backward()
        optimizer.step()


def test_networks_of_one_class_in_a_list_have_their_positions_as_names():
    discriminators = [nn.Linear(4, 1), nn.Linear(4, 1)]
    found = recorded(lambda: step_of(discriminators))
    assert {"step/SGD of discriminators[0] (Linear)/1", "step/SGD of discriminators[1] (Linear)/1"} < found.keys()
    found = recorded(lambda: step_of(discriminators[1:]))  # as a rank does that steps the second one alone
    assert "step/SGD of discriminators[1] (Linear)/1" in found


def test_a_network_is_named_by_the_caller_and_not_by_an_argument():
    first, second = nn.Linear(4, 1), nn.Linear(4, 1)
    found = recorded(lambda: [step_of([first]), step_of([second])])
    assert {"step/SGD of first (Linear)/1", "step/SGD of second (Linear)/1"} < found.keys()


def test_a_backward_pass_that_raises_leaves_no_state():
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))

    def fails(gradient):
        raise ValueError("of the script")

    def train():
        handle = network[0].weight.register_hook(fails)  # after the hooks of the second layer
        with pytest.raises(ValueError, match="of the script"):
            network(torch.ones(2, 4)).mean().backward()
        handle.remove()
        step_of([network])

    calls = [name for name in recorded(train) if name.startswith("call")]
    assert len(calls) == 2, "the forward pass after the error"


def test_gradients_that_autograd_grad_returns_are_not_added_to_those_of_the_step():
    network = nn.Linear(4, 1)

    def train():
        loss = network(torch.ones(2, 4)).mean()
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        (loss * torch.tensor(0.5)).backward(retain_graph=True)
        torch.autograd.grad(loss, network.weight)
        optimizer.step()

    step = recorded(train)["step/SGD of network (Linear)/1"]
    assert [weight.local for weight in step.weights] == [weight.gradient for weight in step.weights]
    assert [(factor.value, factor.divides) for factor in step.factors] == [(0.5, False)]


def test_reading_the_factors_of_a_checkpointed_loss_computes_nothing_again():
    def train():
        network = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        half = torch.tensor(0.5)
        loss = checkpoint(lambda images: network(images).square().mean() * half, torch.rand(6, 4), use_reentrant=False)
        loss.backward()
        optimizer.step()
        return network[1].num_batches_tracked

    counted = train()
    assert recorded(lambda: counted.sub_(train()))
    assert counted == 0


def test_a_step_of_a_gradient_scaler_is_known():
    network, scaler = nn.Linear(4, 1), torch.amp.GradScaler("cpu")

    def train():
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        scaler.scale(network(torch.ones(2, 4)).mean()).backward()
        scaler.step(optimizer)
        optimizer.step()

    found = recorded(train)
    assert [found[f"step/SGD of network (Linear)/{number}"].scaled for number in (1, 2)] == [True, False]


class Encoder(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)


class Autoencoder(nn.Sequential):
    def __init__(self):
        super().__init__(Encoder(), nn.Linear(3, 4))


def test_an_average_is_one_network_and_its_parts_are_none_of_their_own():
    """The copy of a part alone is a network: a module of Lightning has an average of its generator."""

    def train():
        network = Autoencoder()
        whole, part = copy.deepcopy(network), copy.deepcopy(network[0])
        step_of([network])
        return whole, part

    state = recorded(train)["state/1"]
    assert sorted(state.averages) == ["part (Encoder)", "whole (Autoencoder)"]
