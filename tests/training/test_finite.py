"""A training whose numbers are not finite ends within an iteration, names what broke, and has written nothing since."""

import re
from itertools import product

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from lit_gans.callbacks import EMA, RunCheckpoint, Samples
from lit_gans.callbacks.evaluation import Measurement
from lit_gans.config.registry import gans
from lit_gans.models import wgan_gp
from lit_gans.strategies.grad_scaling import NetworkScaling
from lit_gans.training import step
from lit_gans.training.finite import FiniteCheck

BROKEN = 3  # the first iteration whose numbers are not finite, counted from 1
NAN, INF = float("nan"), float("inf")


class Mean(Measurement):
    """Measures the mean of some samples in every iteration."""

    headline, directions = "metric/mean", {"metric/mean": "min"}

    def __init__(self):
        super().__init__(1, 1, 1, 0)

    def measure(self, trainer, module):
        return {"metric/mean": module.sample_grid(4, 0, trainer.datamodule)[0].mean().item()}


def break_loss(module, network, value):
    of_generator, of_discriminators = module.generator_loss, module.discriminator_losses

    def broken(loss):
        return loss * value if module.trainer.global_step == BROKEN - 1 else loss

    def discriminator_losses(*given):
        outputs = dict(of_discriminators(*given))
        return outputs | {network: outputs[network]._replace(loss=broken(outputs[network].loss))}

    if network == "generator":
        module.generator_loss = lambda *given: broken(of_generator(*given))
    else:
        module.discriminator_losses = discriminator_losses


def break_weights(module, network, value):
    """Breaks a single gradient, so that the loss of the iteration is finite."""

    def broken(gradient):
        gradient = gradient.clone()
        if module.trainer.global_step == BROKEN - 1:
            gradient[(0,) * gradient.ndim] = value
        return gradient

    trained = (each for each in module.get_submodule(network).parameters() if each.requires_grad)
    next(trained).register_hook(broken)


def break_penalty(module, value, monkeypatch):
    name = "zero_centered_penalty" if module.share_scores else "r1_penalty"
    place, name = (wgan_gp, "gradient_penalty") if isinstance(module, wgan_gp.WGANGP) else (step, name)
    penalty = vars(place)[name]

    def broken(*given):
        return penalty(*given) * (value if module.trainer.global_step == BROKEN - 1 else 1)

    monkeypatch.setattr(place, name, broken)


def kinds(name):
    """What can break in a GAN: what, and of which network."""
    networks = ("generator", *gans()[name].discriminator_names)
    return [*product(("loss", "weights"), networks), ("penalty", networks[1])]


CASES = [(name, *kind) for name in sorted(gans()) for kind in kinds(name)]


@pytest.fixture
def broken(tiny_gan, monkeypatch):
    """Makes a GAN in which one number breaks in an iteration."""

    def make(name, what, network, value):
        penalized = {"r1_gamma": 1.0} if what == "penalty" and name != "wgan_gp" else {}
        module = tiny_gan(name, n_critic=1, **penalized)
        if what == "penalty":
            break_penalty(module, value, monkeypatch)
        else:
            {"loss": break_loss, "weights": break_weights}[what](module, network, value)
        return module

    return make


def sentence(what, network):
    return f"the {what} of the {network} {'are' if what == 'weights' else 'is'} not finite since iteration {BROKEN}:"


def refused_without_a_trace(fit, module, data, folder, expected):
    """Trains with a save, a grid and a measurement in every iteration, and looks for numbers that are not finite."""
    mean = Mean()
    callbacks = [EMA(0.5), mean, Samples(every_n_steps=1, num=4), RunCheckpoint(every_n_train_steps=1)]
    with pytest.raises(FloatingPointError, match=re.escape(expected)):
        fit(module, data, 9, callbacks=callbacks, enable_checkpointing=True)
    assert module.trainer.global_step == BROKEN
    checkpoint = torch.load(folder / "checkpoints/last.ckpt", weights_only=True)
    assert checkpoint["global_step"] == mean.measured_at == BROKEN - 1
    tensors = [*checkpoint["state_dict"].values(), *checkpoint["generator_ema"]["state_dict"].values()]
    assert all(value.isfinite().all() for value in tensors)
    assert max(path.name for path in (folder / "samples").glob("*.png")) == f"{BROKEN - 1:06d}.png"
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["last.ckpt"]


@pytest.mark.parametrize("late", [False, True], ids=["cpu", "one iteration late"])
@pytest.mark.parametrize(
    ("name", "what", "network", "value"),
    [
        ("d2gan", "loss", "discriminator_2", INF),
        ("gan", "loss", "generator", NAN),
        ("wgan_gp", "penalty", "discriminator", NAN),
        ("gan", "weights", "generator", INF),
        ("gan", "weights", "discriminator", NAN),
    ],
)
def test_the_first_broken_number_is_named_and_nothing_is_written_after_it(
    broken, random_images, fit, tmp_path, name, what, network, value, late
):
    module = broken(name, what, network, value)
    module.finite.late = late
    refused_without_a_trace(fit, module, random_images(), tmp_path, sentence(what, network))


@pytest.mark.faults
@pytest.mark.parametrize("value", [NAN, INF], ids=str)
@pytest.mark.parametrize(("name", "what", "network"), CASES)
def test_every_gan_names_the_first_broken_number(broken, random_images, fit, tmp_path, name, what, network, value):
    module = broken(name, what, network, value)
    refused_without_a_trace(fit, module, random_images(), tmp_path, sentence(what, network))


@pytest.mark.parametrize("late", [False, True])
def test_without_anything_to_write_it_ends_one_iteration_later_where_values_are_read_late(
    broken, random_images, fit, late
):
    module = broken("gan", "loss", "discriminator", NAN)
    module.finite.late = late
    with pytest.raises(FloatingPointError, match=f"since iteration {BROKEN}:"):
        fit(module, random_images(), max_steps=9)
    assert module.trainer.global_step == BROKEN + late


def test_the_last_iteration_is_read_too(broken, random_images, fit):
    module = broken("gan", "weights", "generator", NAN)
    module.finite.late = True
    with pytest.raises(FloatingPointError, match=f"since iteration {BROKEN}:"):
        fit(module, random_images(), max_steps=BROKEN)


def test_a_loss_that_breaks_in_an_earlier_critic_step_or_microbatch_is_named(tiny_gan, random_images, fit):
    module = tiny_gan("gan", n_critic=3, accumulate_gradients=2)
    calls, of_discriminators = [], module.discriminator_losses

    def discriminator_losses(*given):
        calls.append(0)
        ((name, output),) = of_discriminators(*given).items()
        return {name: output._replace(loss=output.loss * (NAN if len(calls) == 6 * (BROKEN - 1) + 2 else 1))}

    module.discriminator_losses = discriminator_losses
    with pytest.raises(FloatingPointError, match=sentence("loss", "discriminator")):
        fit(module, random_images(batch_size=4), max_steps=9)


@pytest.fixture
def fp16_on_the_cpu(monkeypatch):
    """Trains with gradient scalers where no accelerator is."""
    monkeypatch.setattr("lit_gans.training.refusals._refuse_precision", lambda *_: None)


@pytest.mark.usefixtures("fp16_on_the_cpu")
@pytest.mark.parametrize("network", ["generator", "discriminator"])
def test_a_gradient_scale_that_collapses_is_named(tiny_gan, random_images, fit, network):
    """A single overflow is the scaler's business: it skips the step."""
    module = tiny_gan("gan")
    gradients = next(module.get_submodule(network).parameters())
    gradients.register_hook(lambda gradient: gradient * INF if module.trainer.global_step else gradient)
    scaling = NetworkScaling("cpu", lambda: torch.amp.GradScaler("cpu", init_scale=2.0**-21))
    with pytest.raises(
        FloatingPointError, match=f"the gradient scale of the {network} is 2.98.*e-08 since iteration 5:"
    ):
        fit(module, random_images(), max_steps=9, plugins=scaling)


@pytest.mark.usefixtures("fp16_on_the_cpu")
@pytest.mark.parametrize("scale", [0.0, NAN])
def test_a_gradient_scale_of_nothing_or_everything_is_named(tiny_gan, random_images, fit, scale):
    module = tiny_gan("gan")
    scaling = NetworkScaling("cpu", lambda: torch.amp.GradScaler("cpu", init_scale=scale))
    with pytest.raises(FloatingPointError, match=r"the gradient scale of the discriminator is .* since iteration 1:"):
        fit(module, random_images(), max_steps=9, plugins=scaling)


def test_weights_that_are_broken_before_the_first_iteration_are_named(tiny_gan, random_images, fit):
    module = tiny_gan("gan")
    with torch.no_grad():
        next(module.generator.parameters()).view(-1)[0] = NAN
    with pytest.raises(FloatingPointError, match="the weights of the generator are not finite since iteration 0:"):
        fit(module, random_images(), max_steps=2)


class Event:
    """Stands for an event of CUDA, and notes what is done with it."""

    noted = []

    def __init__(self):
        self.number = sum(what == "record" for what, _ in self.noted)

    def record(self):
        self.noted.append(("record", self.number))

    def synchronize(self):
        self.noted.append(("wait for", self.number))


def test_on_cuda_an_iteration_is_read_only_once_the_next_one_is_queued(monkeypatch):
    """A fake tensor has no values: to read one raises."""
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(Event, "noted", [])
    with FakeTensorMode():
        check = FiniteCheck(("discriminator", "generator"))
        check.start({"generator": [torch.ones(3, 3, device="cuda"), torch.ones(2, device="cuda")]})
        check.add("loss", "discriminator", torch.ones((), device="cuda"))
        check.end_iteration(1)
        assert Event.noted == [("record", 0)]
        with pytest.raises(DataDependentOutputException):
            check.end_iteration(2)
    assert Event.noted == [("record", 0), ("record", 1), ("wait for", 0)]


def test_numbers_of_several_dtypes():
    check = FiniteCheck(("discriminator", "generator"))
    check.start({"generator": [torch.zeros(0), torch.full((8,), 30000.0).half()]})  # a norm beyond fp16
    check.add("loss", "discriminator", torch.ones(1, dtype=torch.bfloat16))
    check.add("loss", "generator", torch.tensor(1e300, dtype=torch.float64))
    check.end_iteration(2)
    check.add("loss", "generator", torch.tensor(-INF))
    with pytest.raises(FloatingPointError, match="the loss of the generator is not finite since iteration 3:"):
        check.end_iteration(3)
