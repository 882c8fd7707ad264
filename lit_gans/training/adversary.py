"""Adversarial training for a module that already exists: discriminators, their loss, and a term for the module's loss.

    adversary = Adversary(PatchGAN(0, 3, 64), loss="hinge", weight=0.1)
    output = autoencoder(images)
    loss = l1_loss(output, images) + adversary.loss(output)  # the autoencoder steps on this loss
    adversary.step(images, output, optimizer)  # the discriminator steps

`Adversary` works in a LightningModule with manual optimization, with Fabric, and in a training loop in plain PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn import functional

from lit_gans.common.annotations import converts_arguments
from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.modes import frozen
from lit_gans.common.noise import Noise
from lit_gans.common.precision import full_precision
from lit_gans.common.rank_zero import rank_and_world_size
from lit_gans.training.adaptive_weight import RecordedLayer, adaptive_weight, gradient_at, with_gradient
from lit_gans.training.augmentation import Augmentations, Augmenter
from lit_gans.training.batch import Batch
from lit_gans.training.diffaugment import Augmentation
from lit_gans.training.losses import (
    Scores,
    critic_generator,
    features_of,
    flat_scores,
    hinge_discriminator,
    hinge_generator,
    least_squares_discriminator,
    least_squares_generator,
    logistic_discriminator,
    non_saturating_generator,
    relativistic,
    tensors_of,
    wasserstein_critic,
)
from lit_gans.training.penalties import gradient_penalty, r1_penalty
from lit_gans.training.schedules import Number, Progress, Schedule, refuse_weights, value_at

LossName = Literal["hinge", "clamped_hinge", "logistic", "least_squares", "wasserstein", "relativistic"]
_LOSSES: dict[str, tuple[Callable[..., Tensor], Callable[[Tensor], Tensor]]] = {
    "hinge": (hinge_discriminator, critic_generator),
    "clamped_hinge": (hinge_discriminator, hinge_generator),
    "logistic": (logistic_discriminator, non_saturating_generator),
    "least_squares": (least_squares_discriminator, least_squares_generator),
    "wasserstein": (wasserstein_critic, critic_generator),
}
_COMPARED = ("wasserstein", "relativistic")  # losses whose scores have no threshold between data and outputs
_LECAM_DECAY = 0.99  # decay of the averaged scores in the authors' code
_PERTURBATION = 0.01  # standard deviation of the noise of `approximate_r1`


class Adversary(nn.Module):
    """Holds one or several discriminators. Returns their loss, and the adversarial term of the generator's loss.

    The generator is any module whose output the discriminators compare with data: an autoencoder, a vocoder, a
    super-resolution or a segmentation network. The adversary does not hold the generator. Data and outputs are tensors
    (n, c, ...) with any number of dimensions that the discriminators support.

    A discriminator returns its scores: a tensor (n, ...), or a list, tuple or dict of scores. With `feature_matching`,
    each score is a `WithFeatures`. The losses of all scores are added.

    `loss` freezes the discriminators while they run, so that the generator's backward pass leaves no gradients in them.
    On several ranks, each rank passes its own rows. Every value that is not a mean over rows, such as the adaptive
    weight, is averaged over the ranks before it is used, so that all ranks together train as a single process does.
    Random numbers are seeded from torch's default CPU generator. If the ranks have equal seeds, each rank uses its rows
    of the random numbers that a single process would draw.

    Args:
        discriminator: one discriminator, or several in a sequence, an `nn.ModuleList` or an `nn.ModuleDict`.
        loss: pair of losses, defined in `losses.py`. The generator's loss of `clamped_hinge` is also a hinge.
            `relativistic` compares each row of the data with the same row of the output.
        weight: factor of the adversarial term. It can be a schedule. An adaptive weight is multiplied by this factor.
        feature_matching: weight of the mean absolute difference between the features of the output and of the data
            (Larsen et al. 2016; Kumar et al. 2019, equation 4), averaged over all layers.
        r1_gamma, r2_gamma: weights of R1 and R2, half the squared gradient norm (Mescheder et al. 2018, equation 9).
            They can be schedules.
        gradient_penalty: weight of the two-sided gradient penalty (Gulrajani et al. 2017, equation 3).
        approximate_r1: weight of the mean squared difference between the scores of the data and of the data with noise
            of standard deviation 0.01 (Lin et al. 2025, "Diffusion Adversarial Post-Training for One-Step Video
            Generation"). This penalty needs no second derivative.
        penalty_every: number of iterations between two penalties, or more if the discriminators do not train in such an
            iteration. The penalties are multiplied by this number (Karras et al. 2020, appendix B).
        lecam: weight of LeCam's regularization (Tseng et al. 2021, "Regularizing Generative Adversarial Networks under
            Limited Data"): the squared difference between the scores of data and the averaged scores of outputs, and
            the reverse.
        diffaugment: augmentations of images (n, c, h, w) in [-1, 1], see `diffaugment.py`.
        augmentation: augmentation with a fixed, scheduled or adaptive probability, see `augmentation.py`.
        start: first iteration in which `loss` is not 0, and in which `step` trains the discriminators.
        ramp: number of iterations after `start` in which the weight rises linearly from 0.

    Attributes:
        terms: values of the last calls, for logging: `adversarial`, `feature_matching`, `adaptive_weight`,
            `discriminator`, `penalty`.

    Raises:
        RefusedInput: if a value is out of range, or if options contradict each other.

    Examples:
        >>> adversary = Adversary(nn.Sequential(nn.Flatten(), nn.Linear(12, 1)), weight=0.5)
        >>> optimizer = torch.optim.Adam(adversary.parameters())
        >>> data, output = torch.ones(2, 3, 2, 2), torch.zeros(2, 3, 2, 2, requires_grad=True)
        >>> adversary.loss(output).requires_grad
        True
        >>> adversary.step(data, output, optimizer)
        True
    """

    @converts_arguments
    def __init__(
        self,
        discriminator: nn.Module | Sequence[nn.Module],
        loss: LossName = "hinge",
        *,
        weight: Number = 1.0,
        feature_matching: float = 0.0,
        r1_gamma: Number = 0.0,
        r2_gamma: Number = 0.0,
        gradient_penalty: float = 0.0,
        approximate_r1: float = 0.0,
        penalty_every: int = 1,
        lecam: float = 0.0,
        diffaugment: Sequence[Augmentation] = (),
        augmentation: Augmenter | None = None,
        start: int = 0,
        ramp: int = 0,
    ) -> None:
        super().__init__()
        refuse_weights(weight=weight, feature_matching=feature_matching, r1_gamma=r1_gamma, r2_gamma=r2_gamma)
        refuse_weights(gradient_penalty=gradient_penalty, approximate_r1=approximate_r1, lecam=lecam)
        refuse_below(1, penalty_every=penalty_every)
        refuse_below(0, start=start, ramp=ramp)
        if isinstance(discriminator, nn.ModuleDict):
            discriminator = [*discriminator.values()]
        discriminators = [*discriminator] if isinstance(discriminator, Sequence | nn.ModuleList) else [discriminator]
        if not discriminators:
            raise RefusedInput("discriminator=[]: an adversary needs at least one discriminator.")
        for each in discriminators:
            if not isinstance(each, nn.Module):
                raise RefusedInput(f"discriminator={each!r}: give the adversary a module, such as PatchGAN(0, 3, 64).")
        self.discriminators = nn.ModuleList(discriminators)
        self.loss_name, self.weight, self.feature_matching = loss, weight, feature_matching
        self.r1_gamma, self.r2_gamma, self.gradient_penalty = r1_gamma, r2_gamma, gradient_penalty
        self.approximate_r1, self.penalty_every, self.lecam = approximate_r1, penalty_every, lecam
        self.start, self.ramp = start, ramp
        self.augmentations = Augmentations(tuple(diffaugment), augmentation)
        self.register_buffer("augmentation_state", Augmentations.new_state())
        # sums of the averaged scores of data and of outputs, and the sum of the weights of both averages
        self.register_buffer("averaged_scores", torch.zeros(3))
        self.terms: dict[str, Tensor] = {}
        self.latest_iteration = 0  # latest iteration of `loss` or `step`; 0 again after `load_state_dict`
        self.register_load_state_dict_post_hook(_forget_latest)  # type: ignore[no-untyped-call]
        self._iteration = -1  # iteration of the last step of the discriminators
        self._passed = 1  # number of iterations between the last two of these steps

    augmentation_state: Tensor
    averaged_scores: Tensor

    # ---- the generator's step

    def loss(
        self,
        output: Float[Tensor, "n c *shape"],
        data: Float[Tensor, "m c *shape"] | None = None,
        *,
        condition: Sequence[Tensor] = (),
        iteration: int | None = None,
        reconstruction: Tensor | None = None,
        last_layer: RecordedLayer | None = None,
    ) -> Float[Tensor, ""]:
        """Returns the weighted adversarial term of the generator's loss, with its graph to `output`.

        With `reconstruction` and `last_layer`, the weight adapts to the gradients of both losses (Esser et al. 2021,
        equation 7); the weight of `feature_matching` is not adapted. Under `torch.no_grad()`, these gradients do not
        exist: the term is then returned without its adaptive weight.

        Args:
            output: the generator's output.
            data: data of the same shape, which `relativistic` and `feature_matching` need.
            condition: further arguments of the discriminators.
            iteration: number of finished iterations of all epochs, needed for `start`, `ramp`, `penalty_every`,
                `augmentation` and schedules.
            reconstruction: the generator's other loss, a scalar that is computed from `output`.
            last_layer: the generator's last convolution, see `record_layer`.

        Raises:
            RefusedInput: if an argument that an option needs is missing, if `iteration` decreases, if gradients are
                enabled and the output has no graph, if data and output differ in more than their number, or if their
                numbers differ and an option pairs each row of the data with a row of the output.
        """
        self._raise_if_missing(data, reconstruction, last_layer)
        if torch.is_grad_enabled() and not output.requires_grad:
            raise RefusedInput(
                "adversary.loss got an output without a graph, from which the generator learns nothing: pass the"
                " generator's output, not data or a detached tensor. To only measure the loss, use torch.no_grad()."
            )
        progress = self._progress(iteration, output)
        if progress.iterations < self.start:
            return output.new_zeros((), dtype=torch.float32)
        if not torch.is_grad_enabled():
            last_layer = None
        # with an adaptive weight, the gradient at the output is computed below, and the backward pass reuses it
        fake = output if last_layer is None else full_precision(output.detach()).requires_grad_()
        with frozen(self.parameters()):  # the generator's backward pass then leaves no gradients in the discriminators
            augmented = self._augmented(data, fake, self._noise(fake), progress, feature_matching=self.feature_matching)
            on_fake = self._scores(augmented["fake"], condition)
            on_real = self._scores(augmented["image"], condition) if self._compares else None
        adversarial = self._generator_loss(on_real, on_fake)
        matching = feature_distance(on_real, on_fake) if self.feature_matching else None
        weight, ramp = value_at(self.weight, progress), self._ramp_at(progress)
        self.terms["adversarial"] = adversarial.detach()
        if matching is not None:
            self.terms["feature_matching"] = matching.detach()
        if reconstruction is None or last_layer is None:
            term = weight * adversarial
            return ramp * (term if matching is None else term + self.feature_matching * matching)
        gradient = gradient_at(adversarial, fake, retain_graph=matching is not None)
        balance = self._balance(reconstruction, output, gradient, last_layer)
        self.terms["adaptive_weight"] = balance
        term, gradient = weight * balance * adversarial, weight * balance * gradient
        if matching is not None:
            term = term + self.feature_matching * matching
            gradient = gradient + self.feature_matching * gradient_at(matching, fake)
        return with_gradient(ramp * term, output, ramp * gradient)

    def _raise_if_missing(
        self, data: Tensor | None, reconstruction: Tensor | None, last_layer: RecordedLayer | None
    ) -> None:
        if self._compares and data is None:
            option = "feature_matching" if self.feature_matching else f"loss={self.loss_name!r}"
            raise RefusedInput(f"{option} compares the output with the data: pass loss(output, data).")
        if (reconstruction is None) != (last_layer is None):
            raise RefusedInput(
                "an adaptive weight needs both reconstruction=... and last_layer=...: pass both, or none."
            )
        if last_layer is not None and last_layer.output is None:
            raise RefusedInput(
                "last_layer has recorded no forward pass: call the generator inside `with record_layer(layer) as last`."
            )

    @property
    def _compares(self) -> bool:
        """Whether the generator's loss also depends on the scores or features of the data."""
        return self.loss_name == "relativistic" or self.feature_matching > 0

    def _generator_loss(self, on_real: Scores | None, on_fake: Scores) -> Tensor:
        if self.loss_name == "relativistic":
            return added(relativistic(fake, real) for fake, real in pairs_of(on_fake, on_real))
        return added(_LOSSES[self.loss_name][1](scores) for scores in tensors_of(on_fake))

    def _balance(self, reconstruction: Tensor, output: Tensor, gradient: Tensor, last_layer: RecordedLayer) -> Tensor:
        """Returns the adaptive weight (Esser et al. 2021, equation 7).

        Args:
            reconstruction: the generator's other loss.
            output: the generator's output.
            gradient: gradient of the adversarial loss with respect to the output.
            last_layer: the generator's last convolution.
        """
        assert last_layer.input is not None
        assert last_layer.output is not None
        of_reconstruction = gradient_at(reconstruction, last_layer.output, retain_graph=True)
        # from the output back to the layer, for example through a tanh or a crop
        (of_adversarial,) = torch.autograd.grad(output, last_layer.output, gradient.to(output.dtype), retain_graph=True)
        layer, features = last_layer.layer, last_layer.input
        return adaptive_weight(layer, features, of_reconstruction, of_adversarial, mean_over_ranks)

    # ---- the discriminators' step

    def step(
        self,
        data: Float[Tensor, "m c *shape"],
        output: Float[Tensor, "n c *shape"],
        optimizer: Any,
        *,
        condition: Sequence[Tensor] = (),
        iteration: int | None = None,
        backward: Callable[[Tensor], Any] = Tensor.backward,
    ) -> bool:
        """Runs one step of the discriminators. Before `start`, does nothing. Returns whether a step was run.

        Args:
            data: the data.
            output: the generator's output for these data. Its graph to the generator is not used.
            optimizer: optimizer of this module's parameters. It can be wrapped by Lightning or Fabric.
            condition: further arguments of the discriminators.
            iteration: see `loss`.
            backward: function that runs the backward pass of a loss, such as `self.manual_backward` of a
                LightningModule or `fabric.backward`.

        Raises:
            RefusedInput: if a discriminator has a gradient for a parameter that the optimizer does not hold, if the
                data require a gradient, or if `loss` does not support the iteration, the data or the output.
        """
        if self._progress(iteration, data).iterations < self.start:
            return False
        loss = self.discriminator_loss(data, output, condition=condition, iteration=iteration)
        optimizer.zero_grad()
        backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        self._refuse_other_optimizer(optimizer)
        return True

    def _refuse_other_optimizer(self, optimizer: Any) -> None:
        """Raises `RefusedInput` if the optimizer has not removed a gradient that it should have stepped with."""
        left = {name: parameter for name, parameter in self.named_parameters() if parameter.grad is not None}
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]} if left else set()
        for name, parameter in left.items():
            if id(parameter) not in held:
                raise RefusedInput(
                    f"the optimizer of adversary.step does not hold {name}: make it of adversary.parameters()."
                )

    def discriminator_loss(
        self,
        data: Float[Tensor, "m c *shape"],
        output: Float[Tensor, "n c *shape"],
        *,
        condition: Sequence[Tensor] = (),
        iteration: int | None = None,
    ) -> Float[Tensor, ""]:
        """Returns the loss of the discriminators with its penalties, for a custom backward pass; see `step`."""
        if data.requires_grad:
            raise RefusedInput("the data require a gradient: pass the data first, and then the generator's output.")
        progress, is_first = self._next_progress(iteration, data)
        noise = self._noise(data)
        batch = self._augmented(data, output.detach(), noise, progress, gradient_penalty=self.gradient_penalty)
        real, fake = batch["image"], batch["fake"]
        # penalties come first, so that FSDP reduces gradients only after the penalties' gradients exist
        penalty = self._penalty(real, fake, condition, noise, progress)
        on_real, on_fake = self._scores(real, condition), self._scores(fake, condition)
        if self.approximate_r1 and progress.is_due(self.penalty_every):
            penalty = penalty + self.penalty_every * self._approximate_r1(real, on_real, condition, noise)
        self._adapt(on_real, on_fake, progress, is_first)
        pairs = pairs_of(on_real, on_fake)
        function = relativistic if self.loss_name == "relativistic" else _LOSSES[self.loss_name][0]
        loss = added(function(*pair) for pair in pairs)
        self.terms["discriminator"] = loss.detach()
        if self.lecam:
            penalty = penalty + self.lecam * self._lecam(on_real, on_fake)
        self.terms["penalty"] = penalty.detach()
        return loss + penalty

    def _penalty(
        self, real: Tensor, fake: Tensor, condition: Sequence[Tensor], noise: Noise, progress: Progress
    ) -> Tensor:
        """Returns the weighted sum of the gradient penalties, or 0 in iterations without penalties."""
        total = real.new_zeros((), dtype=torch.float32)
        if not progress.is_due(self.penalty_every):
            return total
        r1, r2 = value_at(self.r1_gamma, progress), value_at(self.r2_gamma, progress)
        for discriminator in self.discriminators:
            for weight, images in ((r1, real), (r2, fake)):
                if weight:
                    total = total + weight * r1_penalty(discriminator, images, *condition)
            if self.gradient_penalty:
                eps = noise.uniform("eps", len(real), *[1] * (real.dim() - 1))
                total = total + self.gradient_penalty * gradient_penalty(discriminator, real, fake, eps, *condition)
        return self.penalty_every * total

    def _approximate_r1(self, real: Tensor, on_real: Scores, condition: Sequence[Tensor], noise: Noise) -> Tensor:
        """Returns the weighted squared difference between the scores of the data and of the data with noise."""
        noisy = real + _PERTURBATION * noise.normal("perturbation", len(real), *real.shape[1:])
        pairs = pairs_of(on_real, self._scores(noisy, condition))
        squared = (functional.mse_loss(full_precision(a), full_precision(b)) for a, b in pairs)
        return self.approximate_r1 * added(squared)

    def _lecam(self, on_real: Scores, on_fake: Scores) -> Tensor:
        """Updates the averaged scores, and returns the squared difference between scores and opposite averages."""
        real, fake = flat_scores(on_real).float(), flat_scores(on_fake).float()
        means = mean_over_ranks(torch.stack([real.detach().mean(), fake.detach().mean(), real.new_ones(())]))
        self.averaged_scores.lerp_(means, 1 - _LECAM_DECAY)
        # divides by the sum of the weights, which is below 1 in the first iterations (bias correction)
        mean_real, mean_fake = (self.averaged_scores[:2] / self.averaged_scores[2]).clone()
        distance: Tensor = (real - mean_fake).square().mean() + (fake - mean_real).square().mean()
        return distance

    # ---- helpers of both steps

    def _scores(self, images: Tensor, condition: Sequence[Tensor]) -> Scores:
        return [discriminator(images, *condition) for discriminator in self.discriminators]

    def _progress(self, iteration: int | None, rows: Tensor) -> Progress:
        """Returns the progress of the training.

        Raises:
            RefusedInput: if an option depends on the iteration, and the iteration is missing or has decreased.
        """
        needed = [name for name in ("start", "ramp") if getattr(self, name)]
        needed += ["penalty_every"] if self.penalty_every > 1 else []
        needed += [name for name in ("weight", "r1_gamma", "r2_gamma") if isinstance(getattr(self, name), Schedule)]
        needed += ["augmentation"] if self.augmentations.augmenter is not None else []
        if iteration is None and needed:
            raise RefusedInput(f"{needed[0]} depends on the iteration: pass iteration=NUMBER, the finished iterations.")
        if iteration is not None and needed and torch.is_grad_enabled():  # a measurement may be of an earlier one
            if iteration < self.latest_iteration:
                raise RefusedInput(
                    f"iteration={iteration} follows iteration={self.latest_iteration}, but {needed[0]} depends on the"
                    " number of iterations since the training began: count the iterations of all epochs. A batch index"
                    " restarts in each epoch. To begin again, make a new Adversary, or load a state into this one."
                )
            self.latest_iteration = iteration
        return Progress(iteration or 0, images_per_iteration=len(rows) * rank_and_world_size()[1])

    def _next_progress(self, iteration: int | None, rows: Tensor) -> tuple[Progress, bool]:
        """Returns the progress of a step of the discriminators, and whether this is its first batch.

        A step has several batches, with the same iteration, if it accumulates their gradients.
        """
        progress = self._progress(iteration, rows)
        is_first = iteration is None or iteration != self._iteration
        if is_first:
            self._passed = max(1, progress.iterations - self._iteration) if self._iteration >= 0 else 1
            self._iteration = progress.iterations
        return replace(progress, passed=self._passed), is_first

    def _ramp_at(self, progress: Progress) -> float:
        """Returns the factor in [0, 1] that ramps up the adversarial term after `start`."""
        return min(1.0, (progress.iterations - self.start + 1) / self.ramp) if self.ramp else 1.0

    @property
    def _is_random(self) -> bool:
        """Whether an option uses random numbers. If no option does, the state of torch's generator must not change."""
        augments = bool(self.augmentations.diffaugment) or self.augmentations.augmenter is not None
        return augments or self.gradient_penalty > 0 or self.approximate_r1 > 0

    def _noise(self, rows: Tensor) -> Noise:
        """Returns the random numbers of a call. The seed is drawn on the CPU, so reading it does not synchronize."""
        seed = int(torch.randint(2**62, ())) if self._is_random else 0
        return Noise(torch.Generator(rows.device), (seed,), *rank_and_world_size())

    def _augmented(
        self, data: Tensor | None, output: Tensor, noise: Noise, progress: Progress, **pairing: float
    ) -> Batch:
        """Returns augmented data, `image`, and augmented outputs, `fake`.

        Args:
            data: the data, or None if only the outputs are needed.
            output: the generator's output.
            noise: random numbers of the call.
            progress: progress of the training.
            **pairing: weights of this step that pair rows of data and output if they are not 0.
        """
        if data is not None:
            self._raise_if_shapes_differ(data, output, pairing)
        batch = {"image": output.detach() if data is None else data, "fake": output}
        self.augmentations.state = self.augmentation_state  # moving a module to a device replaces its buffers
        return self.augmentations.apply(batch | self.augmentations.noise(noise, len(output)), progress)

    def _raise_if_shapes_differ(self, data: Tensor, output: Tensor, pairing: Mapping[str, float]) -> None:
        shapes = f"data {tuple(data.shape)} and output {tuple(output.shape)}"
        if data.shape[1:] != output.shape[1:]:
            raise RefusedInput(f"{shapes} must have the same shape.")
        pairs = {
            "loss='relativistic'": self.loss_name == "relativistic",
            **pairing,
            "diffaugment": self.augmentations.diffaugment,
            "augmentation": self.augmentations.augmenter is not None,
        }
        options = [name for name, is_used in pairs.items() if is_used]
        if options and len(data) != len(output):
            raise RefusedInput(
                f"{options[0]} pairs each row of the data with a row of the output, but {shapes} have different numbers"
                " of rows: pass as many rows of the data as of the output."
            )

    def _adapt(self, on_real: Scores, on_fake: Scores, progress: Progress, is_first: bool) -> None:
        """Updates the probability of an adaptive augmentation. Its state is a buffer, and equal on all ranks."""
        if not self.augmentations.adapts:
            return
        real, fake = flat_scores(on_real), flat_scores(on_fake)
        threshold = 0.5 if self.loss_name == "least_squares" else 0.0
        is_real = real > fake if self.loss_name in _COMPARED else real > threshold
        self.augmentations.observe(is_real, sum_over_ranks)
        if is_first:
            self.augmentations.adapt(progress, lambda state: state)


def _forget_latest(adversary: Adversary, _: object) -> None:
    """Hook that lets the iterations begin again, for example after a checkpoint of an earlier iteration is loaded."""
    adversary.latest_iteration = 0


def pairs_of(first: Scores, second: Scores) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields the tensors of two structures of scores in pairs."""
    return zip(tensors_of(first), tensors_of(second), strict=True)


def added(losses: Iterable[Tensor]) -> Tensor:
    """Returns the sum of scalar losses."""
    return reduce(add, losses)


def feature_distance(on_real: Scores, on_fake: Scores) -> Float[Tensor, ""]:
    """Returns the mean absolute difference between the features of outputs and of data, averaged over all layers.

    Raises:
        RefusedInput: if the discriminators return no features.
    """
    real, fake = features_of(on_real), features_of(on_fake)
    if not fake:
        raise RefusedInput(
            "feature_matching needs a discriminator that returns WithFeatures(scores, features) instead of scores."
        )
    pairs = zip(fake, real, strict=True)
    return added(functional.l1_loss(full_precision(a), full_precision(b.detach())) for a, b in pairs) / len(fake)


def mean_over_ranks(value: Tensor) -> Tensor:
    """Returns the mean of a tensor over all processes."""
    return sum_over_ranks(value) / rank_and_world_size()[1]


def sum_over_ranks(value: Tensor) -> Tensor:
    """Returns the sum of a tensor over all processes."""
    if rank_and_world_size()[1] == 1:
        return value
    value = value.clone()
    dist.all_reduce(value)
    return value
