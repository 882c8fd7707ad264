"""Gradients of one rank alone never move a network; whatever is averaged trains the weights of one process."""

from functools import cache, partial

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from lit_gans.common.errors import RefusedInput
from lit_gans.common.lightning import LightningModule
from lit_gans.strategies.base import block_backward_sync
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP
from lit_gans.strategies.gradients import (
    AVERAGED,
    BLOCKED,
    INTERRUPTED,
    LOCAL,
    NONE,
    Gradients,
    norms,
    running_backward,
    sums,
    which_differ,
)

from . import ranks

STRATEGIES = {
    "ddp": NetworkDDP,
    "unused": partial(NetworkDDP, find_unused_parameters=True),
    "copies": partial(NetworkDDP, gradient_as_bucket_view=False),
    "fsdp": NetworkFSDP,
    "fsdp_layer": partial(NetworkFSDP, wrap="layer"),
    **{f"zero_{stage}": partial(NetworkDeepSpeed, stage=stage) for stage in (0, 2, 3)},
}
DDP = ("ddp", "unused", "copies")


class Trained(LightningModule):
    """Trains a network rightly in its first iteration, which the mistakes of a later one must not profit from."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        torch.manual_seed(0)
        layers = [nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)]
        self.critic, self.other = nn.Sequential(*layers), nn.Linear(3, 3)

    def training_step(self, batch, batch_idx):
        self.optimizer, self.for_other = self.optimizers()
        self.other.requires_grad_(False)
        if batch_idx == 0:
            self.manual_backward(self.loss(batch))
            self.optimizer.step()
            self.optimizer.zero_grad()
        else:
            self.update(batch)

    def loss(self, batch):
        return self.critic(batch).square().mean()

    def blocked(self):
        return block_backward_sync(self.trainer.strategy)

    def finish(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def on_train_batch_end(self, *_):
        self.other.requires_grad_(True)

    def configure_optimizers(self):
        self.configured = [torch.optim.SGD(each.parameters(), 0.1) for each in (self.critic, self.other)]
        return self.configured

    def train_dataloader(self):
        batches = torch.randn(3, 4, 3, generator=torch.Generator().manual_seed(1))
        return DataLoader(batches[:, self.global_rank :: self.trainer.world_size], batch_size=None)


# ---- mistakes


class Blocked(Trained):
    def update(self, batch):
        with self.blocked():
            self.manual_backward(self.loss(batch))
        self.finish()


class BlockedInside(Trained):
    """The inner context does not end the outer one."""

    def update(self, batch):
        with self.blocked():
            with self.blocked():
                pass
            self.manual_backward(self.loss(batch))
        self.finish()


class BlockedAfterAveraged(Trained):
    def update(self, batch):
        self.manual_backward(self.loss(batch))
        with self.blocked():
            self.manual_backward(self.loss(batch))
        self.finish()


class BlockedInClosure(Trained):
    def update(self, batch):
        def closure():
            self.optimizer.zero_grad()
            with self.blocked():
                self.manual_backward(self.loss(batch))

        self.optimizer.step(closure)


class BlockedInClosureOfBareOptimizer(Trained):
    def update(self, batch):
        def closure():
            with self.blocked():
                self.manual_backward(self.loss(batch))

        self.configured[0].step(closure)


class Raw(Trained):
    def update(self, batch):
        self.loss(batch).backward()
        self.finish()


class RawInTheMiddle(Trained):
    """An auxiliary loss, which reaches neither the first nor the last layer."""

    def update(self, batch):
        self.manual_backward(self.loss(batch))
        inputs = self.critic[1](self.critic[0](batch)).detach()
        self.critic[2](inputs).square().mean().backward()
        self.finish()


class RawInTheMiddleOfAnother(Trained):
    """In the closure of another optimizer."""

    def update(self, batch):
        self.manual_backward(self.loss(batch))
        self.other.requires_grad_(True)

        def closure():
            self.critic[2](self.other(batch).new_ones(2, 4) * batch[:1, :1]).square().mean().backward()

        self.for_other.step(closure)
        self.finish()


class Assigned(Trained):
    def update(self, batch):
        parameters = [*self.critic.parameters()]
        for parameter, gradient in zip(parameters, torch.autograd.grad(self.loss(batch), parameters), strict=True):
            parameter.grad = gradient
        self.finish()


class Interrupted(Trained):
    """Ignores an error of a backward."""

    def update(self, batch):
        hidden = self.critic[1](self.critic[0](batch))
        hidden.register_hook(self.fail)
        try:
            self.manual_backward(self.critic[4](self.critic[3](self.critic[2](hidden))).square().mean())
        except ArithmeticError:
            self.finish()

    def fail(self, _):
        raise ArithmeticError


class RawInterrupted(Interrupted):
    def manual_backward(self, loss):
        loss.backward()


ALONE = "critic would be stepped with gradients of this process only: "
IN_BLOCK = ALONE + "its last backward pass ran inside block_backward_sync"
BY_HAND = ALONE + "compute them with self.manual_backward(loss)"
REFUSED = {
    **{(Blocked, name): IN_BLOCK for name in STRATEGIES},
    **{(BlockedInside, name): IN_BLOCK for name in ("ddp", "fsdp", "zero_2")},
    **{(BlockedAfterAveraged, name): IN_BLOCK for name in ("ddp", "fsdp", "zero_0", "zero_3")},
    (BlockedAfterAveraged, "zero_2"): "critic ran two backward passes before its step",
    **{(BlockedInClosure, name): IN_BLOCK for name in ("ddp", "fsdp", "zero_2")},
    **{(BlockedInClosureOfBareOptimizer, name): IN_BLOCK for name in ("ddp", "fsdp")},
    **{(case, "ddp"): BY_HAND for case in (Raw, RawInTheMiddle, RawInTheMiddleOfAnother)},
    (Assigned, "ddp"): ALONE + "no backward pass has computed them since the last step",
    (Assigned, "zero_2"): BY_HAND,
    **{(Interrupted, name): ALONE + "its last backward pass raised an error" for name in ("ddp", "fsdp")},
    (RawInterrupted, "fsdp"): ALONE + "its last backward pass raised an error",
}

# ---- what is right


class Accumulates(Trained):
    def update(self, batch):
        with self.blocked():
            self.manual_backward(self.loss(batch) / 2)
        self.manual_backward(self.loss(2 * batch) / 2)
        self.finish()


class ClosesAfterBlock(Trained):
    """The closure of a step runs the last of several backwards."""

    bare = False

    def update(self, batch):
        with self.blocked():
            self.manual_backward(self.loss(batch) / 2)
        optimizer = self.configured[0] if self.bare else self.optimizer
        optimizer.step(lambda: self.manual_backward(self.loss(2 * batch) / 2))
        self.optimizer.zero_grad()


class ClosesTheBareOptimizer(ClosesAfterBlock):
    bare = True


class Twice(Trained):
    def update(self, batch):
        for factor in (1, 2):
            self.manual_backward(self.loss(factor * batch) / 2)
        self.finish()


class RawBefore(Trained):
    """A backward averages what has been accumulated before by whatever."""

    def update(self, batch):
        self.critic[2](self.critic[1](self.critic[0](batch)).detach()).square().mean().backward()
        self.manual_backward(self.loss(batch))
        self.finish()


class StepsTwice(Trained):
    def update(self, batch):
        self.manual_backward(self.loss(batch))
        self.optimizer.step()
        self.finish()


class KeepsZeros(Trained):
    """Steps once more without gradients."""

    def update(self, batch):
        self.manual_backward(self.loss(batch))
        self.finish()
        self.optimizer.zero_grad(set_to_none=False)
        self.optimizer.step()


class DropsBlocked(Trained):
    """Forgets what has been accumulated, as after a loss that is not finite."""

    def update(self, batch):
        with self.blocked():
            self.manual_backward(self.loss(batch))
        self.finish_nothing()
        self.manual_backward(self.loss(batch))
        self.finish()

    def finish_nothing(self):
        self.optimizer.zero_grad()
        self.optimizer.step()


class DropsAveraged(Trained):
    """Forgets averaged gradients, which ZeRO stores besides those of the parameters."""

    def update(self, batch):
        self.manual_backward(self.loss(3 * batch))
        self.optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        self.finish()


class DropsToZero(DropsBlocked):
    def finish_nothing(self):
        self.optimizer.zero_grad(set_to_none=False)
        self.optimizer.step()


class AssignsMeans(Trained):
    def update(self, batch):
        parameters = [*self.critic.parameters()]
        for parameter, gradient in zip(parameters, torch.autograd.grad(self.loss(batch), parameters), strict=True):
            parameter.grad = self.trainer.strategy.reduce(gradient, reduce_op="mean")
        self.finish()


class Clips(Trained):
    def update(self, batch):
        self.manual_backward(self.loss(batch))
        nn.utils.clip_grad_norm_(self.critic.parameters(), 0.01)
        self.finish()


class ReplacesGradients(Trained):
    def update(self, batch):
        self.manual_backward(self.loss(batch))
        for parameter in self.critic.parameters():
            parameter.grad = parameter.grad.clamp(-0.01, 0.01)
        self.finish()


class Unused(Trained):
    """Trains the first layer in one iteration only."""

    def loss(self, batch):
        hidden = batch.repeat(1, 2)[:, :4] if self.trainer.global_step else self.critic[0](batch)
        return self.critic[1:](hidden).square().mean()

    update = Clips.update


class Checkpoints(Trained):
    """Nested backwards of a reentrant checkpoint."""

    def loss(self, batch):
        hidden = checkpoint(self.critic[:3], batch.requires_grad_(), use_reentrant=True)
        return self.critic[3:](hidden).square().mean()

    update = Clips.update


class TrainsAnother(Trained):
    """Another network trains between the backward of one and its step."""

    def update(self, batch):
        self.manual_backward(self.loss(batch))
        self.critic.requires_grad_(False)
        self.other.requires_grad_(True)
        with self.blocked():
            self.manual_backward(self.critic(self.other(batch)).mean())
        self.manual_backward(self.critic(self.other(batch)).mean())
        self.for_other.step()
        self.for_other.zero_grad()
        self.critic.requires_grad_(True)
        self.finish()


LEGAL = {
    Accumulates: STRATEGIES,
    ClosesAfterBlock: ("ddp", "fsdp", "zero_0", "zero_2"),
    ClosesTheBareOptimizer: ("ddp", "fsdp"),
    Twice: (*DDP, "fsdp", "zero_0", "zero_3"),
    RawBefore: DDP,
    StepsTwice: ("ddp", "fsdp"),
    KeepsZeros: ("ddp", "fsdp"),
    DropsBlocked: DDP,
    DropsAveraged: ("ddp", "fsdp", "zero_0", "zero_2", "zero_3"),
    DropsToZero: ("ddp", "copies"),
    AssignsMeans: ("ddp",),
    Clips: ("ddp", "fsdp"),
    ReplacesGradients: ("ddp", "fsdp"),
    Unused: ("unused", "fsdp"),
    Checkpoints: ("ddp", "copies", "fsdp_layer"),  # DDP searches no graph with a reentrant checkpoint
    TrainsAnother: ("ddp", "fsdp", "zero_2", "zero_3"),
}
REFUSED[Checkpoints, "fsdp"] = "runs torch.utils.checkpoint with use_reentrant=True, which loses gradients"
CELLS = [(case, name) for case, names in LEGAL.items() for name in names]


def train(case, **arguments):
    module = case()
    ranks.quiet_trainer(max_epochs=1, **arguments).fit(module)
    return module


@cache
def trained_alone(case):
    return train(case, devices=1).state_dict()


def on_a_rank():
    """Returns the weights of each legal case, and the error of each mistake."""
    weights, refusals = {}, {}
    for case, name in CELLS:
        strategy = train(case, devices=2, strategy=STRATEGIES[name]()).trainer.strategy
        weights[case, name] = {key: value.clone() for key, value in strategy.lightning_module_state_dict().items()}
    for case, name in REFUSED:
        try:
            train(case, devices=2, strategy=STRATEGIES[name]())
            refusals[case, name] = "nothing was refused"
        except RefusedInput as refused:
            refusals[case, name] = str(refused)
    return weights, refusals


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return ranks.run(f"{__name__}.on_a_rank", tmp_path_factory.mktemp("gradients"))


@pytest.mark.ranks
@pytest.mark.parametrize(("case", "name"), REFUSED)
def test_no_step_uses_gradients_of_one_rank_alone(found, case, name):
    for _, refusals in found:
        assert REFUSED[case, name] in refusals[case, name]


@pytest.mark.ranks
@pytest.mark.parametrize(("case", "name"), CELLS)
def test_two_ranks_train_the_weights_of_one_process(found, case, name):
    alone = trained_alone(case)
    assert any((alone[key] - start).abs().max() > 1e-3 for key, start in case().state_dict().items())
    for weights, _ in found:
        torch.testing.assert_close(weights[case, name], alone, rtol=0, atol=1e-6)


# ---- states


class Layer:
    """A layer that watches its gradients."""

    def __init__(self, name):
        self.layer, self.gradients = nn.Linear(2, 1), Gradients(name)
        self.gradients.watch(self.layer.parameters())

    def loss(self):
        return self.layer(torch.ones(1, 2)).sum()


@pytest.mark.parametrize("before", [NONE, LOCAL, BLOCKED, AVERAGED])
@pytest.mark.parametrize("after", [BLOCKED, AVERAGED])
def test_a_backward_sets_the_states_of_the_networks_that_it_reaches(before, after):
    reached, other = Layer("reached"), Layer("other")
    for each in (reached, other):
        each.gradients.state = before
    networks = {"reached": reached.gradients, "other": other.gradients}
    with running_backward(networks, ["reached", "other"], after):
        reached.loss().backward()
    assert (reached.gradients.state, other.gradients.state) == (after, before)
    reached.loss().backward()
    assert reached.gradients.state is LOCAL


def test_an_error_in_a_backward_leaves_no_averaged_state():
    reached, other = Layer("reached"), Layer("other")
    reached.gradients.state = other.gradients.state = AVERAGED

    def run():
        reached.loss().backward()
        raise ArithmeticError

    with (
        pytest.raises(ArithmeticError),
        running_backward({"reached": reached.gradients, "other": other.gradients}, ["reached"], AVERAGED),
    ):
        run()
    assert (reached.gradients.state, other.gradients.state) == (INTERRUPTED, AVERAGED)
    with pytest.raises(
        RefusedInput, match=r"reached would be stepped .* raised an error before the gradients were averaged"
    ):
        reached.gradients.refuse_local()


def test_a_backward_that_trains_no_other_network_leaves_local_gradients_there_if_it_reaches_it():
    layer = Layer("other")
    with running_backward({"other": layer.gradients}, ["trained"], AVERAGED):
        layer.loss().backward()
    assert layer.gradients.state is LOCAL


def test_sums_tell_equal_tensors_from_different_ones_and_from_none():
    same, nan = torch.linspace(-1, 1, 9), torch.full((2,), torch.nan)
    one = sums([same, same, None, None, nan, torch.zeros(2)], torch.device("cpu"))
    other = sums([same * (1 + 1e-6), same + 0.01, same, None, nan, torch.zeros(2)], torch.device("cpu"))
    assert which_differ(torch.stack([one, other])) == [False, True, True, False, False, False]


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
def test_norms_of_every_type_of_weights(dtype):
    tensor = torch.full((70_000,), 2.0, dtype=dtype)  # its sum is no number in float16
    assert norms([tensor], torch.device("cpu"))[0].tolist() == pytest.approx([140_000, 2 * 70_000**0.5, 140_000])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_tell_equal_values_at_other_positions_from_each_other(dtype):
    rows = torch.zeros(3, 2, dtype=dtype), torch.zeros(3, 2, dtype=dtype)
    for rank, tensor in enumerate(rows):
        tensor[rank] = 1  # the gradient of an embedding, of which each rank has used another row
    mirrored = torch.arange(4.0), torch.arange(4.0).flip(0)
    one, other = (sums(tensors, torch.device("cpu")) for tensors in zip(rows, mirrored, strict=True))
    assert which_differ(torch.stack([one, other])) == [True, True]
