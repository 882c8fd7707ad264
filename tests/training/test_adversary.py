"""The adversary of a module: each option equals its equation written out, in float64."""

import pytest
import torch
from jaxtyping import TypeCheckError, config
from torch import nn
from torch.nn import functional

from lit_gans.common.errors import RefusedInput
from lit_gans.networks.features import WithFeatures
from lit_gans.training.adaptive_weight import record_layer
from lit_gans.training.adversary import Adversary
from lit_gans.training.augmentation import Adaptive
from lit_gans.training.schedules import LinearSchedule


class Critic(nn.Module):
    """Returns scores, or scores with the features of both layers."""

    def __init__(self, seed=0, features=False):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.last = nn.Conv2d(2, 3, 3, 1, 1), nn.Conv2d(3, 1, 3)
        self.features = features
        self.double()

    def forward(self, images, *condition):
        hidden = self.first(images + sum(condition)).tanh()
        scores = self.last(hidden)
        return WithFeatures(scores, [hidden, scores]) if self.features else scores


def rows(seed, num=4):
    return torch.randn(num, 2, 6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


DATA, OUTPUT = rows(1), rows(2).requires_grad_()
REAL, FAKE = (Critic()(images).detach() for images in (DATA, OUTPUT))
DISCRIMINATOR_LOSSES = {
    "hinge": (1 - REAL).clamp(min=0).mean() + (1 + FAKE).clamp(min=0).mean(),
    "clamped_hinge": (1 - REAL).clamp(min=0).mean() + (1 + FAKE).clamp(min=0).mean(),
    "logistic": -(torch.sigmoid(REAL).log().mean() + torch.sigmoid(-FAKE).log().mean()),
    "least_squares": ((REAL - 1) ** 2).mean() + (FAKE**2).mean(),
    "wasserstein": FAKE.mean() - REAL.mean(),
    "relativistic": -torch.sigmoid(REAL - FAKE).log().mean(),
}
GENERATOR_LOSSES = {
    "hinge": -FAKE.mean(),
    "clamped_hinge": (1 - FAKE).clamp(min=0).mean(),
    "logistic": -torch.sigmoid(FAKE).log().mean(),
    "least_squares": ((FAKE - 1) ** 2).mean(),
    "wasserstein": -FAKE.mean(),
    "relativistic": -torch.sigmoid(FAKE - REAL).log().mean(),
}


@pytest.mark.parametrize("name", DISCRIMINATOR_LOSSES)
def test_both_losses_of_each_pair(name):
    adversary = Adversary(Critic(), name, weight=0.5)
    torch.testing.assert_close(adversary.discriminator_loss(DATA, OUTPUT), DISCRIMINATOR_LOSSES[name])
    torch.testing.assert_close(adversary.loss(OUTPUT, DATA), 0.5 * GENERATOR_LOSSES[name])
    torch.testing.assert_close(adversary.terms["adversarial"], GENERATOR_LOSSES[name])


def test_the_losses_of_several_discriminators_and_of_nested_scores_are_added():
    class Nested(Critic):
        def forward(self, images):
            return {"fine": super().forward(images), "coarse": [super().forward(images[..., ::2, ::2])]}

    both = Adversary([Critic(0), Nested(1)])
    coarse = Adversary(Critic(1)).loss(OUTPUT[..., ::2, ::2])
    torch.testing.assert_close(both.loss(OUTPUT), sum(Adversary(Critic(seed)).loss(OUTPUT) for seed in (0, 1)) + coarse)


def test_the_generators_backward_leaves_no_gradient_in_the_discriminator_and_the_step_none_in_the_generator():
    adversary, output = Adversary(Critic()), OUTPUT.detach().clone().requires_grad_()
    adversary.loss(output).backward()
    assert output.grad.abs().sum() > 0
    assert all(parameter.grad is None and parameter.requires_grad for parameter in adversary.parameters())
    output.grad = None
    adversary.discriminator_loss(DATA, output).backward()
    assert output.grad is None
    assert all(layer.weight.grad.abs().sum() > 0 for layer in adversary.discriminators[0].children())


def test_parameters_that_were_frozen_stay_frozen_even_after_an_error():
    critic = Critic()
    critic.first.requires_grad_(False)
    with pytest.raises(RuntimeError):
        Adversary(critic).loss(OUTPUT[:, :1].expand(-1, 3, -1, -1))
    assert [parameter.requires_grad for parameter in critic.parameters()] == [False, False, True, True]


def test_a_step_is_a_step_of_plain_torch():
    adversary, critic = Adversary(Critic()), Critic()
    optimizers = [torch.optim.Adam(module.parameters(), 0.1) for module in (adversary, critic)]
    for iteration in range(3):
        assert adversary.step(DATA + iteration, OUTPUT, optimizers[0])
        loss = (1 - critic(DATA + iteration)).clamp(min=0).mean() + (1 + critic(OUTPUT)).clamp(min=0).mean()
        optimizers[1].zero_grad()
        loss.backward()
        optimizers[1].step()
    for ours, plain in zip(adversary.parameters(), critic.parameters(), strict=True):
        assert torch.equal(ours, plain)


def squared_norms(images):
    images = images.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(Critic()(images).sum(), images)
    return gradient.flatten(1).square().sum(1)


def test_penalties_are_computed_every_few_iterations_and_multiplied():
    adversary = Adversary(Critic(), r1_gamma=LinearSchedule(start=2, end=4, over=4), r2_gamma=3.0, penalty_every=2)
    values = [adversary.discriminator_loss(DATA, OUTPUT, iteration=number) for number in range(3)]
    base, r1, r2 = DISCRIMINATOR_LOSSES["hinge"], squared_norms(DATA).mean() / 2, squared_norms(OUTPUT).mean() / 2
    expected = [base + 2 * (2 * r1 + 3 * r2), base, base + 2 * (3 * r1 + 3 * r2)]
    torch.testing.assert_close(torch.stack(values), torch.stack(expected))
    torch.testing.assert_close(adversary.terms["discriminator"], base)
    torch.testing.assert_close(adversary.terms["penalty"], expected[2] - base)


def test_the_two_sided_penalty_and_its_approximation():
    same = Adversary(Critic(), gradient_penalty=10.0)  # between two equal images, every share is the same image
    torch.testing.assert_close(
        same.discriminator_loss(DATA, DATA) - Adversary(Critic()).discriminator_loss(DATA, DATA),
        10 * (squared_norms(DATA).sqrt() - 1).square().mean(),
    )
    torch.manual_seed(0)
    approximate = Adversary(Critic(), approximate_r1=1e4)
    approximate.discriminator_loss(DATA.repeat(500, 1, 1, 1), OUTPUT.repeat(500, 1, 1, 1))
    # to first order, the expected squared difference of a score is 0.01^2 times its squared gradient norm
    images = DATA.clone().requires_grad_()
    norms = [
        torch.autograd.grad(score.sum(), images, retain_graph=True)[0].square().sum((1, 2, 3)).mean()
        for score in Critic()(images).flatten(1).unbind(1)
    ]
    torch.testing.assert_close(approximate.terms["penalty"], torch.stack(norms).mean(), rtol=0.05, atol=0)


def test_lecam_pulls_the_scores_to_the_averages_of_the_other_kind():
    adversary = Adversary(Critic(), lecam=2.0)
    averages, total = torch.zeros(2, dtype=torch.float64), 0.0
    for shift in (0.0, 1.0, 2.0):
        adversary.discriminator_loss(DATA + shift, OUTPUT)
        real, fake = Critic()(DATA + shift).detach(), FAKE
        averages = 0.99 * averages + 0.01 * torch.stack([real.mean(), fake.mean()])
        total = 0.99 * total + 0.01
        expected = (real - averages[1] / total).square().mean() + (fake - averages[0] / total).square().mean()
        torch.testing.assert_close(adversary.terms["penalty"].double(), 2 * expected, rtol=1e-5, atol=0)
    restored = Adversary(Critic(1), lecam=2.0)
    restored.load_state_dict(adversary.state_dict())
    assert torch.equal(restored.discriminator_loss(DATA, OUTPUT), adversary.discriminator_loss(DATA, OUTPUT))


class Autoencoder(nn.Module):
    def __init__(self, last="tanh"):
        super().__init__()
        torch.manual_seed(5)
        self.first, self.last, self.ends_with = nn.Conv2d(2, 4, 3, 1, 1), nn.Conv2d(4, 2, 3, 1, 1), last
        self.double()

    def forward(self, images):
        output = self.last(self.first(images).tanh())
        return output.tanh() if self.ends_with == "tanh" else output


@pytest.mark.parametrize("last", ["tanh", "convolution"])
@pytest.mark.parametrize("matching", [0.0, 3.0])
def test_the_adaptive_weight_gives_the_gradients_of_the_equation_written_out(last, matching):
    ours, plain, critic = Autoencoder(last), Autoencoder(last), Critic(features=True)
    adversary = Adversary(Critic(features=True), weight=0.5, feature_matching=matching)
    with record_layer(ours.last) as layer:
        output = ours(DATA)
    reconstruction = functional.l1_loss(output, DATA)
    loss = reconstruction + adversary.loss(output, DATA, reconstruction=reconstruction, last_layer=layer)
    loss.backward()

    output = plain(DATA)
    reconstruction, judged = functional.l1_loss(output, DATA), critic(output)
    adversarial = -judged.scores.mean()
    norms = [
        torch.autograd.grad(term, plain.last.weight, retain_graph=True)[0].norm()
        for term in (reconstruction, adversarial)
    ]
    balance = (norms[0] / (norms[1] + 1e-6)).clamp(max=1e4).detach()
    distances = [functional.l1_loss(a, b.detach()) for a, b in zip(judged.features, critic(DATA).features, strict=True)]
    expected = reconstruction + 0.5 * balance * adversarial + matching * sum(distances) / 2
    expected.backward()
    torch.testing.assert_close(adversary.terms["adaptive_weight"], balance)
    torch.testing.assert_close(loss, expected)
    for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("dims", [1, 3])
def test_the_adaptive_weight_of_other_dimensions(dims):
    convolution = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
    torch.manual_seed(0)
    generator = convolution(2, 2, 3, 1, 1, groups=2).double()
    critic = nn.Sequential(convolution(2, 1, 3)).double()
    data = torch.randn(3, 2, *[5] * dims).double()
    with record_layer(generator) as layer:
        output = generator(data)
    reconstruction = functional.mse_loss(output, data)
    adversary = Adversary(critic)
    adversary.loss(output, reconstruction=reconstruction, last_layer=layer)
    terms = reconstruction, -critic(output).mean()
    norms = [torch.autograd.grad(term, generator.weight, retain_graph=True)[0].norm() for term in terms]
    torch.testing.assert_close(adversary.terms["adaptive_weight"], norms[0] / (norms[1] + 1e-6))


def test_before_its_start_the_adversary_does_nothing_and_then_its_weight_rises():
    adversary = Adversary(Critic(), start=2, ramp=4)
    optimizer = torch.optim.SGD(adversary.parameters(), 0.0)
    steps = [adversary.step(DATA, OUTPUT, optimizer, iteration=number) for number in range(4)]
    assert steps == [False, False, True, True]
    adversary = Adversary(Critic(), start=2, ramp=4)
    shares = [adversary.loss(OUTPUT, iteration=number) / GENERATOR_LOSSES["hinge"] for number in range(8)]
    torch.testing.assert_close(torch.stack(shares).double(), torch.tensor([0, 0, 1, 2, 3, 4, 4, 4]).double() / 4)


@pytest.mark.parametrize("options", [{"start": 5}, {"ramp": 9}, {"penalty_every": 2}, {"augmentation": Adaptive()}])
def test_an_iteration_that_restarts_with_an_epoch_is_refused(options):
    adversary = Adversary(Critic(), **options)
    optimizer, message = torch.optim.SGD(adversary.parameters(), 0.0), "iteration=0 follows iteration=3, but "
    calls = [
        lambda number: adversary.loss(OUTPUT, iteration=number),
        lambda number: adversary.step(DATA, OUTPUT, optimizer, iteration=number),
    ]
    for iteration in (0, 3):
        for call in (*calls, *calls):  # several in an iteration
            call(iteration)
    for call in calls:
        with pytest.raises(RefusedInput, match=message + next(iter(options))):
            call(0)
    with torch.no_grad():
        adversary.loss(OUTPUT, iteration=1)
    adversary.load_state_dict(adversary.state_dict())
    for call in calls:
        call(0)


def test_without_an_option_that_depends_on_it_any_iteration_may_follow():
    adversary = Adversary(Critic(), r1_gamma=1.0)
    for iteration in (3, 0):
        adversary.loss(OUTPUT, iteration=iteration)
        adversary.discriminator_loss(DATA, OUTPUT, iteration=iteration)


def test_conditions_reach_every_discriminator_and_penalty():
    shift = torch.ones(4, 1, 1, 1, dtype=torch.float64)
    adversary, plain = Adversary(Critic(), r1_gamma=1.0, gradient_penalty=1.0), Adversary(Critic())
    torch.testing.assert_close(adversary.loss(OUTPUT, condition=[shift]), plain.loss(OUTPUT + shift))
    adversary.discriminator_loss(DATA, DATA, condition=[shift])
    norms = squared_norms(DATA + shift)
    torch.testing.assert_close(adversary.terms["penalty"], norms.mean() / 2 + (norms.sqrt() - 1).square().mean())


def test_an_adaptive_augmentation_is_part_of_the_state():
    critic = nn.Sequential(nn.Conv2d(2, 1, 3), nn.Flatten())
    critic[0].bias.data.fill_(9.0)  # every score is positive
    adversary = Adversary(critic, augmentation=Adaptive(over=100))
    for iteration in range(4):
        adversary.discriminator_loss(DATA.float(), OUTPUT.float(), iteration=iteration)
    assert adversary.augmentation_state.tolist() == pytest.approx([0.16, 0, 0])
    assert "augmentation_state" in adversary.state_dict()


@pytest.mark.parametrize(("score", "sign"), [(0.4, -1), (0.6, 1)])
def test_the_probability_follows_the_threshold_of_least_squares(score, sign):
    critic = nn.Sequential(nn.Conv2d(2, 1, 3), nn.Flatten(), nn.Identity())
    critic[0].weight.data.zero_()
    critic[0].bias.data.fill_(score)
    adversary = Adversary(critic, loss="least_squares", augmentation=Adaptive(over=100))
    adversary.discriminator_loss(DATA.float(), OUTPUT.float(), iteration=0)
    total, number = adversary.augmentation_state[1:].tolist()
    assert total == sign * number != 0


@pytest.mark.parametrize(
    ("first", "penalized_at", "adapted_at"), [(0, [0, 4, 8], [4, 8]), (1, [5, 9], [3, 7, 11]), (3, [5, 9], [3, 7, 11])]
)
def test_discriminators_that_train_in_every_other_iteration_are_penalized_and_adapt(first, penalized_at, adapted_at):
    critic = nn.Sequential(nn.Conv2d(2, 1, 3), nn.Flatten())
    critic[0].bias.data.fill_(9.0)  # every score is positive, so that each update changes the probability
    adversary = Adversary(critic, augmentation=Adaptive(over=100), r1_gamma=1.0, penalty_every=4)
    penalized, adapted = [], []
    for iteration in range(first, 12, 2):
        before = adversary.augmentation_state[0].item()
        for _ in range(2):  # microbatches
            adversary.discriminator_loss(DATA.float(), OUTPUT.float(), iteration=iteration)
            penalized += [iteration] if adversary.terms["penalty"] else []
        adapted += [iteration] if adversary.augmentation_state[0] != before else []
    assert penalized == [iteration for iteration in penalized_at for _ in range(2)]
    assert adapted == adapted_at
    assert adversary.augmentation_state[0].item() == pytest.approx(0.16 * len(adapted_at))


def test_no_random_number_is_drawn_unless_an_option_needs_one():
    adversary = Adversary(Critic(), r1_gamma=1.0, lecam=1.0)
    state = torch.get_rng_state()
    adversary.loss(OUTPUT)
    adversary.discriminator_loss(DATA, OUTPUT)
    assert torch.equal(torch.get_rng_state(), state)


MISTAKES = [
    (lambda: Adversary([]), "needs at least one discriminator"),
    (lambda: Adversary(Critic(), weight=-1.0), "weight=-1.0 must be at least 0"),
    (lambda: Adversary(Critic(), penalty_every=0), "penalty_every=0 must be at least 1"),
    (lambda: Adversary(Critic(), start=5).loss(OUTPUT), "start depends on the iteration: pass iteration=NUMBER"),
    (lambda: Adversary(Critic(), weight=LinearSchedule(over=9)).loss(OUTPUT), "weight depends on the iteration"),
    (
        lambda: Adversary(Critic(), "relativistic").loss(OUTPUT),
        r"loss='relativistic' compares .* pass loss\(output, data\)",
    ),
    (lambda: Adversary(Critic(), feature_matching=1.0).loss(OUTPUT), "feature_matching compares"),
    (lambda: Adversary(Critic(), feature_matching=1.0).loss(OUTPUT, DATA), r"returns WithFeatures\(scores, features\)"),
    (lambda: Adversary(Critic()).loss(OUTPUT, reconstruction=OUTPUT.mean()), "needs both reconstruction"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_a_mistake_is_named(mistake, message):
    with pytest.raises(RefusedInput, match=message):
        mistake()


@pytest.mark.parametrize("num", [1, 2])
@pytest.mark.parametrize(
    ("options", "methods"),
    [
        ({"loss": "relativistic"}, ["loss", "discriminator_loss"]),
        ({"feature_matching": 1.0}, ["loss"]),
        ({"gradient_penalty": 1.0}, ["discriminator_loss"]),
        ({"diffaugment": ("translation",)}, ["loss", "discriminator_loss"]),
        ({"augmentation": Adaptive()}, ["loss", "discriminator_loss"]),
    ],
)
def test_options_that_pair_rows_need_as_many_rows_of_the_data_as_of_the_output(options, methods, num):
    adversary = Adversary(Critic(features=True), **options)
    calls = {
        "loss": lambda: adversary.loss(OUTPUT, DATA[:num], iteration=0),
        "discriminator_loss": lambda: adversary.discriminator_loss(DATA[:num], OUTPUT, iteration=0),
    }
    for name, call in calls.items():
        if name in methods:
            with pytest.raises(RefusedInput, match=rf"{next(iter(options))}.* pairs .*data \({num}, .*output \(4, "):
                call()
        else:
            call()


def test_other_options_need_no_pairs_of_rows():
    options = {"r1_gamma": 1.0, "r2_gamma": 1.0, "approximate_r1": 1.0, "lecam": 1.0}
    assert Adversary(Critic(), **options).discriminator_loss(DATA[:2], OUTPUT).isfinite()
    torch.testing.assert_close(
        Adversary(Critic()).discriminator_loss(DATA[:2], OUTPUT),
        (1 - REAL[:2]).clamp(min=0).mean() + (1 + FAKE).clamp(min=0).mean(),
    )


@pytest.mark.parametrize("held", [nn.ModuleList, lambda critics: nn.ModuleDict(zip("ab", critics, strict=True))])
def test_a_module_holds_several_discriminators(held):
    critics = [Critic(0), Critic(1)]
    assert torch.equal(Adversary(held(critics)).loss(OUTPUT), Adversary(critics).loss(OUTPUT))


def test_an_unknown_loss_is_named():
    with pytest.raises((RefusedInput, TypeCheckError), match="'hing'"):  # the tests check types first
        Adversary(Critic(), "hing")


def test_without_gradients_the_term_is_measured_without_its_adaptive_weight():
    generator, adversary = Autoencoder(), Adversary(Critic(), weight=0.5)
    with torch.no_grad(), record_layer(generator.last) as layer:
        output = generator(DATA)
        term = adversary.loss(output, reconstruction=functional.l1_loss(output, DATA), last_layer=layer)
        torch.testing.assert_close(term, adversary.loss(output))
    assert "adaptive_weight" not in adversary.terms


def test_the_last_layer_must_be_a_convolution_that_has_run():
    layer = nn.Linear(6, 6).double()
    with record_layer(layer) as recorded:
        pass
    output = OUTPUT.detach().clone().requires_grad_()
    with pytest.raises(RefusedInput, match="has recorded no forward pass"):
        Adversary(Critic()).loss(output, reconstruction=output.mean(), last_layer=recorded)
    with record_layer(layer) as recorded:
        output = layer(OUTPUT)
    with pytest.raises(RefusedInput, match="the last layer is Linear: an adaptive weight needs a Conv1d"):
        Adversary(Critic()).loss(output, reconstruction=output.mean(), last_layer=recorded)


def test_an_optimizer_of_other_parameters_is_refused():
    adversary, generator = Adversary(Critic()), nn.Conv2d(2, 2, 1)
    optimizer = torch.optim.SGD(generator.parameters(), 0.1)
    message = r"the optimizer of adversary\.step does not hold discriminators\.0\.first\.weight: make it of adversary"
    with pytest.raises(RefusedInput, match=message):
        adversary.step(DATA, OUTPUT, optimizer)
    partly = torch.optim.SGD([*adversary.discriminators[0].first.parameters()], 0.1)
    with pytest.raises(RefusedInput, match=r"does not hold discriminators\.0\.last\.weight"):
        Adversary.step(adversary, DATA, OUTPUT, partly)


def test_gradients_that_the_optimizer_sets_to_zero_are_no_mistake(monkeypatch):
    adversary = Adversary(Critic())
    optimizer = torch.optim.SGD(adversary.parameters(), 0.1)
    set_to_zero = optimizer.zero_grad
    monkeypatch.setattr(optimizer, "zero_grad", lambda: set_to_zero(set_to_none=False))
    assert adversary.step(DATA, OUTPUT, optimizer)
    assert all(not parameter.grad.any() for parameter in adversary.parameters())


def test_data_and_output_that_are_exchanged_or_of_other_shapes_are_refused(monkeypatch):
    adversary = Adversary(Critic())
    optimizer = torch.optim.SGD(adversary.parameters(), 0.1)
    with pytest.raises(RefusedInput, match="the data require a gradient: pass the data first"):
        adversary.step(OUTPUT * 2, DATA, optimizer)
    with pytest.raises(RefusedInput, match="an output without a graph, from which the generator learns nothing"):
        adversary.loss(OUTPUT.detach())
    with torch.no_grad():
        assert adversary.loss(OUTPUT.detach()) == adversary.loss(OUTPUT)
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # as it is for users
    with pytest.raises(RefusedInput, match=r"data \(4, 2, 6, 4\) and output \(4, 2, 6, 6\) must have the same shape"):
        adversary.step(DATA[..., :4], OUTPUT, optimizer)
    with pytest.raises(RefusedInput, match="must have the same shape"):
        Adversary(Critic(), "relativistic").loss(OUTPUT, DATA[..., :4])


def test_a_class_is_no_discriminator(monkeypatch):
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # as it is for users
    for wrong in (Critic, [Critic]):
        with pytest.raises(RefusedInput, match="give the adversary a module, such as"):
            Adversary(wrong)
