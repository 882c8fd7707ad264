"""Recording changes nothing, needs torch alone, and ends with the watched steps."""

import copy
import inspect
import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.distributed import HashStore
from torch.nn.modules import module as hooks_of_modules
from torch.optim import optimizer as hooks_of_optimizers
from torch.utils.checkpoint import checkpoint

from lit_gans.check import RankConsistency, check_ranks
from lit_gans.check.board import Board, counts_of, events_of
from lit_gans.check.recorder import Recorder
from lit_gans.check.tensors import digests_of_rows
from lit_gans.common.errors import RefusedInput


def train(num_steps):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(network.parameters())
    for _ in range(num_steps):
        optimizer.zero_grad()
        network(torch.randn(6, 4)).square().mean().backward()
        optimizer.step()
    return network, torch.get_rng_state(), [parameter.grad for parameter in network.parameters()]


@pytest.mark.parametrize("num_steps", [3, 5])  # the last step is watched, or not
def test_weights_gradients_and_random_numbers_are_the_same_to_the_last_bit(num_steps):
    plain, state, gradients = train(num_steps)
    with check_ranks(steps=3):
        checked, checked_state, checked_gradients = train(num_steps)
    torch.testing.assert_close(checked_gradients, gradients, rtol=0, atol=0)
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
        network, *_ = train(3)
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
    assert len(recorder._backwards._stepped_at["Adam of network (Sequential)"]) == 2


def test_all_steps_are_counted_although_few_are_recorded():
    check = check_ranks(steps=2)
    check.board = Board(HashStore(), 0, 2, "check")
    recorder = check.__enter__().recorder
    train(6)
    recorder.close()
    assert len([*events_of(check.board, 0)]) == 2
    assert counts_of(check.board, 0) == {"Adam of network (Sequential)": 6}


@pytest.mark.parametrize("steps", [0, -1])
def test_a_check_of_no_steps_is_refused(steps):
    with pytest.raises(RefusedInput, match=f"steps={steps} must be at least 1"):
        check_ranks(steps)
    with pytest.raises(RefusedInput, match=f"steps={steps} must be at least 1"):
        RankConsistency(steps)


def test_a_single_process_has_nothing_to_compare():
    with check_ranks() as check:
        train(1)
    assert check.findings == []
    assert "there is only one process" in check.report()


ALONE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"lightning", "pytorch_lightning", "torchmetrics", "torchvision", "hydra"}:
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
import lit_gans.check
"""


@pytest.mark.runs
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


@pytest.mark.parametrize("optimizer_of", [torch.optim.SGD, torch.optim.LBFGS])
@pytest.mark.parametrize("as_keyword", [True, False])
def test_a_closure_is_recorded_after_its_backward_pass(optimizer_of, as_keyword):
    """Lightning trains so by default: forward and backward pass are within the step."""

    def train():
        torch.manual_seed(0)
        network = nn.Linear(4, 1)
        optimizer = optimizer_of(network.parameters(), lr=0.1)

        def closure():
            optimizer.zero_grad()
            loss = network(torch.ones(2, 4)).square().mean()
            loss.backward()
            gradients.append(network.weight.grad.double().norm().item())
            return loss

        for _ in range(3):
            gradients = []
            losses = optimizer.step(closure=closure) if as_keyword else optimizer.step(closure)
            first.append(gradients[0])
        return losses, network.weight.detach()

    first, outcome = [], []
    loss, weights = train()
    found = recorded(lambda: outcome.extend(train()), steps=2)
    names = [name for name in found if name.startswith("step")]
    assert names == [f"step/{optimizer_of.__name__} of network (Linear)/{number}" for number in (1, 2)]
    assert [found[name].weights[0].norm for name in names] == first[:2]
    assert found[names[0]].weights[0].local is not None
    assert found[names[0]].line.startswith(__file__)
    torch.testing.assert_close(outcome, [loss, weights], rtol=0, atol=0)


class Parts(nn.Module):
    """A network whose methods are called, with a buffer of whole numbers."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), nn.Linear(3, 4)
        self.register_buffer("used", torch.zeros(3))
        self.register_buffer("scale", torch.full((3,), 0.5))

    def encode(self, images):
        return self.encoder(images)

    def decode(self, codes):
        return self.decoder(codes)

    def forward(self, images):
        return self.decode(self.encode(images))


def test_a_network_whose_methods_are_called_is_one_network():
    def train():
        model = Parts()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.decode(model.encode(torch.rand(2, 4))).mean().backward()
        optimizer.step()

    found = recorded(train)
    assert [*found] == [
        "call/encoder of model (Parts)/0",
        "step/SGD of model (Parts)/1",
        "state/1",
    ], "codes are an output and no data"
    names = [weight.name for weight in found["step/SGD of model (Parts)/1"].weights]
    assert names[0] == "encoder.weight of model (Parts)"
    assert found["state/1"].whole == ["used of model (Parts)"]


def test_events_of_a_whole_network_and_of_its_parts_have_the_same_shapes():
    def train(calls_whole):
        networks = {0: SimpleNamespace(model=Parts())}  # where no variable shows it
        optimizer = torch.optim.SGD(networks[0].model.parameters(), lr=0.1)
        if calls_whole:
            networks[0].model(torch.rand(2, 4))
        model_of = lambda: networks[0].model  # noqa: E731
        model_of().decoder(model_of().encoder(torch.rand(2, 4))).mean().backward()
        optimizer.step()

    events = []
    for calls_whole in (True, False):
        recorder = Recorder(2, lambda name, record: None, events.append)
        train(calls_whole)
        recorder.close()
        assert recorder.error == ""
    whole, parts = events
    assert (whole.optimizer, parts.optimizer) == ("SGD of Parts", "SGD of Encoder, Linear")
    assert whole.shapes == parts.shapes
    assert whole.paths != parts.paths


def test_a_copy_is_known_before_the_first_step():
    def train():
        network = Autoencoder()
        right, other = copy.deepcopy(network), copy.deepcopy(network)
        other[0].weight.data.add_(1)
        step_of([network])
        return right, other

    state = recorded(train)["state/1"]
    assert sorted(state.averages) == ["other (Autoencoder)", "right (Autoencoder)"]
    assert state.copies == ["right (Autoencoder)"]


@pytest.mark.parametrize(("training", "expected"), [(True, ["network (Sequential)"]), (False, [])])
def test_a_network_with_dropout_draws_random_numbers_in_training_mode(training, expected):
    def train():
        network, head = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).train(training), nn.Linear(4, 1)
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
        for _ in range(2):
            head(network(torch.randn(4, 4))).mean().backward()
            optimizer.step()

    assert recorded(train, 2)["state/1"].draws == expected


def test_options_and_weights_that_no_optimizer_steps_are_recorded():
    class Encoder(nn.Sequential):
        pass

    class Judge(nn.Sequential):
        pass

    def train():
        network, judge = Encoder(nn.Linear(8, 8), nn.Linear(8, 8)), Judge(nn.Linear(8, 1)).requires_grad_(False)
        optimizer = torch.optim.Adam(network[1].parameters(), lr=0.5, betas=(0.25, 0.75))
        for _ in range(2):
            judge(network(torch.randn(4, 8))).mean().backward()
            optimizer.step()

    records = recorded(train, 2)
    (step, _) = [record for name, record in records.items() if name.startswith("step/")]
    assert (step.options["lr"], step.options["betas[1]"]) == ([0.5], [0.75])
    assert sorted(records["state/1"].frozen) == ["judge (Judge)", "network (Encoder)"]


def test_generated_images_are_no_data_where_they_are_the_input_of_a_network():
    def train():
        generator, discriminator = nn.Linear(4, 4), nn.Linear(4, 1)
        augment = nn.Identity()
        optimizer = torch.optim.SGD(discriminator.parameters(), lr=0.1)
        fake = generator(torch.rand(3, 4)).detach()
        discriminator(torch.cat([augment(torch.rand(2, 4)), fake])).mean().backward()
        discriminator(fake).mean().backward()
        optimizer.step()

    found = recorded(train)
    calls = {name: len(record.rows) for name, record in found.items() if name.startswith("call")}
    assert calls == {
        "call/generator (Linear)/0": 3,
        "call/augment (Identity)/0": 2,
        "call/discriminator (Linear)/0": 2,
    }


def test_the_memory_of_the_script_can_still_be_freed():
    """FSDP frees gathered weights."""
    network, images = nn.Sequential(nn.Linear(4, 4)), torch.rand(2, 4)
    other = nn.Sequential(nn.Linear(4, 4))  # compared as an average

    def train():
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        network(images).mean().backward()
        optimizer.step()

    recorded(train)
    for tensor in (images, network[0].weight, other[0].weight):
        tensor.untyped_storage().resize_(0)


@dataclass
class Batch:
    images: torch.Tensor
    names: list


class Reads(nn.Module):
    """A network that gets a batch in any shape, and reads the images in it."""

    def __init__(self, images_of):
        super().__init__()
        self.images_of, self.layer = images_of, nn.Linear(4, 1)

    def forward(self, *inputs, **keywords):
        return self.layer(self.images_of(*inputs, **keywords))


CONTAINERS = {
    "list": (lambda images, other: ([images, other],), lambda batch: batch[0]),
    "nested": (lambda images, other: (7, ({"of": (images, other)}, "text")), lambda _, batch: batch[0]["of"][0]),
    "dataclass": (lambda images, other: (Batch(images, ["text", other]),), lambda batch: batch.images),
    "keyword": (lambda images, other: {"images": [images, other]}, lambda images: images[0]),
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_row_of_a_batch_in_a_container_consists_of_all_its_tensors(kind):
    """Ranks can have the same conditions for other images: labels and empty tensors are no rows."""
    pack, images_of = CONTAINERS[kind]
    images, conditions, changed = torch.rand(3, 4), torch.rand(3, 4), torch.rand(3, 4)

    def rows(*tensors):
        def train():
            network = Reads(images_of)
            inputs = pack(*tensors)
            network(**inputs) if kind == "keyword" else network(*inputs)

        (call,) = (record for name, record in recorded(train).items() if name.startswith("call"))
        return call.rows

    found = rows(images, conditions)
    assert len({*found}) == 3
    assert rows(images, conditions) == found
    assert not {*rows(images, changed)} & {*found}
    assert not {*rows(changed, conditions)} & {*found}
    assert rows(images, torch.arange(3)) == rows(images, torch.empty(0, 4)), "not part of a row"


def test_generated_images_are_no_data_in_a_container_either():
    def train():
        generator, reads = nn.Linear(4, 4), Reads(lambda batch: batch[0])
        fake = generator(torch.rand(3, 4)).detach()
        reads([fake, fake])

    assert [name for name in recorded(train) if name.startswith("call")] == ["call/generator (Linear)/0"]


def test_a_validation_in_the_forward_pass_of_a_wrapper_is_no_training_data():
    class Module(Reads):
        def training_step(self, batch):
            """Lightning's DDP redirects its forward pass to this method, and to validation_step."""

    module = Module(lambda batch: batch[0])
    found = recorded(lambda: [module.train(mode)([torch.rand(2, 4)]) for mode in (False, True)])
    assert [name for name in found if name.startswith("call")] == ["call/module (Module)/0"]


def test_inputs_without_gradients_are_recorded_apart_and_their_rows_are_not_counted():
    network = nn.Linear(4, 1)

    def train():
        recorder = Recorder(5, records.__setitem__, lambda name: None)
        with torch.no_grad():
            for _ in range(50):
                network(torch.rand(3, 4))
        network(torch.rand(2, 4))
        recorder.close()
        return recorder.rows

    records = {}
    assert train() == {"network (Linear)": 2}
    assert "call/network (Linear)/0" in records, "after many validation batches"
    assert {record.network for record in records.values()} == {"network (Linear)", "network (Linear) without gradients"}


@pytest.mark.parametrize(
    ("dtype", "size", "expected"),
    [(torch.uint8, 64, 3), (torch.int64, 16, 3), (torch.int64, 10, 0), (torch.bool, 64, 0), (torch.float32, 4, 3)],
)
def test_integers_are_rows_unless_they_are_few_numbers_such_as_labels(dtype, size, expected):
    network = nn.Flatten()
    found = recorded(lambda: network(torch.randint(0, 2, (3, size)).to(dtype)))
    assert [len(record.rows) for record in found.values()] == [expected] * bool(expected)


def test_integers_are_rows_only_where_no_input_has_rows_of_floats():
    network, latents = Reads(lambda _, latents: latents), torch.rand(2, 4)
    found = recorded(lambda: network(torch.ones(2, 16, dtype=torch.int64), latents))
    (call,) = found.values()
    assert call.rows == [*digests_of_rows(latents)]


class Hides(nn.Module):
    """A network that calls another one, which it does not contain."""

    def __init__(self, network):
        super().__init__()
        self.layer, self.hidden = nn.Linear(4, 4), [network]

    def forward(self, images):
        return self.hidden[0](self.layer(images))


@pytest.mark.parametrize("is_called", [False, True])
def test_a_network_in_a_list_is_recorded_as_outside_of_the_network_that_calls_it(is_called):
    def train():
        networks = {0: SimpleNamespace(hides=Hides(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))))}
        hides = networks[0].hides
        optimizer = torch.optim.SGD(hides.hidden[0].parameters(), lr=0.1)
        hides(torch.rand(2, 4)).mean().backward()
        if is_called:
            hides.hidden[0](torch.rand(2, 4))
        optimizer.step()

    found = recorded(train)
    (name, *_) = (name for name in found if name.startswith("step"))
    assert name == "step/SGD of hidden[0] (Sequential)/1"
    weights = found[name].weights
    assert [weight.name.partition(" of ")[0] for weight in weights] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert [weight.outside for weight in weights] == [not is_called] * 4
    for weight in weights:
        assert weight.local == pytest.approx(weight.gradient, abs=1e-6 * weight.norm)


def test_a_parameter_of_no_called_network_is_compared_and_a_tensor_of_the_optimizer_is_not():
    """A flat tensor can be a shard, such as that of DeepSpeed."""

    def train():
        parameter, tensor = nn.Parameter(torch.ones(2)), torch.ones(3, requires_grad=True)
        optimizer = torch.optim.SGD([parameter, tensor], lr=0.1)
        (parameter.sum() + tensor.sum()).backward()
        optimizer.step()

    parameter, tensor = recorded(train)["step/SGD of unknown parameters/1"].weights
    assert (parameter.name, parameter.outside, parameter.skipped) == ("of shape (2,)", True, "")
    assert (parameter.before - parameter.after) == pytest.approx(0.1 * parameter.gradient)
    assert "no parameter of a network" in tensor.skipped


def test_an_attribute_is_named_without_the_private_dictionary_of_its_module():
    class Trains(nn.Module):
        def __init__(self):
            super().__init__()
            self.generator, self.critic = nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.Linear(4, 1))

        def training_step(self, images):
            self.critic(self.generator(images))

    assert [*recorded(lambda: Trains().training_step(torch.rand(2, 4)))] == ["call/generator (Sequential)/0"]


@pytest.mark.parametrize("in_lightning", [False, True])
def test_the_line_of_the_backward_pass_is_recorded_and_whether_lightning_runs_it(in_lightning):
    class Module(Reads):
        pass

    if in_lightning:
        Module.manual_backward = lambda self, loss: loss.backward()

    def train():
        module = Module(lambda images: images)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        loss = module(torch.rand(2, 4)).mean()
        lines.append(inspect.currentframe().f_lineno + 1)
        loss.backward()
        optimizer.step()

    lines = []
    (step,) = (record for name, record in recorded(train).items() if name.startswith("step"))
    assert step.backward_line == f"{__file__}:{lines[0]}"
    assert step.line == f"{__file__}:{lines[0] + 1}"
    assert step.in_lightning == in_lightning
