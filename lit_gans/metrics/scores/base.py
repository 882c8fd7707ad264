"""Base classes of scores. Scores are torchmetrics metrics, computed from image features on one or more ranks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor, distributed, nn
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors

from lit_gans.common.errors import RefusedInput
from lit_gans.common.identity import digest_of
from lit_gans.metrics.extractors.base import Extractor, Features, Network, Widths

Value = TypeVar("Value")
_NO_LOGITS = "the extractor has no class logits."
# attributes that a score can override without changing its states, in addition to the special methods of Python
_WITHOUT_STATES = {
    "_abc_impl",
    "attach",
    "compute",
    "directions",
    "higher_is_better",
    "keys",
    "named",
    "needs_classes",
    "needs_covariance",
    "needs_known_classes",
    "needs_logits",
    "too_few",
    "unmeasurable",
    "with_extractor",
    "without_classes",
}


class Score(Metric):
    """Base class of all scores: a torchmetrics `Metric` that is not differentiable."""

    is_differentiable = False
    higher_is_better: bool = False
    full_state_update = False


@dataclass(frozen=True)
class Compared:
    """Properties of the images and the extractor that determine whether a score can be measured.

    Args:
        num_real, num_fake: total number of real and of generated images on all ranks.
        widths: widths of features and logits, and number of classes of the generator.
        known_classes: number of classes if the logits correspond to the classes of the data, otherwise 0.
        labels: class of each real image, or None if the images have no classes.
    """

    num_real: int
    num_fake: int
    widths: Widths
    known_classes: int
    labels: Int64[Tensor, " n"] | None


class FeatureScore(Score):
    """Base class of torchmetrics `Metric` classes that compare generated with real images by their features.

    Subclasses define `add_states`, `update_features` and `compute`. The name of each state begins with `real_` or
    `fake_`. A list state holds rows in main memory. Its rows are gathered in the order of the ranks, and the list can
    be empty on some ranks.

    Args:
        feature: feature extractor, see `Network`. If None, an `Evaluator` sets the extractor, or `update` is called
            with `Features`.
        reset_real_features: whether `reset` also resets the states of the real images.
        normalize: whether images are floats in [0, 1], which are rounded to uint8. Otherwise, images must be uint8.
        input_img_size: channels, height and width of a random image. If `feature` does not declare the widths of its
            outputs, the image is passed to `feature` to determine them.
        seed: seed of random splits and subsets. The global random number generator is not used.
        kwargs: arguments of `torchmetrics.Metric`.

    Attributes:
        directions: for each name, `min` if smaller values are better, or `max` if larger values are better. None if
            neither is better, as for a spread.
        needs_covariance: whether the score fits Gaussians.
        needs_logits: whether the score requires an extractor with class logits.
        needs_known_classes: whether the score requires an extractor whose logits correspond to the classes of the data.
        needs_classes: whether the score requires a generator with classes.
        with_extractor: whether metric keys end with the extractor's name.
    """

    feature_network = "inception"  # name of the attribute that torchmetrics' FeatureShare replaces

    directions: dict[str, str | None]
    needs_covariance: ClassVar[bool] = False
    needs_logits: ClassVar[bool] = False
    needs_known_classes: ClassVar[bool] = False
    needs_classes: ClassVar[bool] = False
    with_extractor: ClassVar[bool] = True

    inception: nn.Module

    def __init__(
        self,
        feature: nn.Module | None = None,
        reset_real_features: bool = True,
        normalize: bool = False,
        input_img_size: tuple[int, int, int] = (3, 64, 64),
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"dist_sync_fn": gather, **kwargs})
        self.normalize, self.reset_real_features, self.seed = normalize, reset_real_features, seed
        self.widths = Widths()
        if feature is None:
            self.add_states()
        else:
            if not isinstance(feature, nn.Module):
                raise RefusedInput(
                    f"{type(self).__name__}({feature!r}): expected an extractor or another module, such as"
                    " InceptionExtractor()."
                )
            network = Network(feature, normalize)
            self.attach(network, network.widths(input_img_size)[0])

    def attach(self, network: Network, widths: Widths) -> None:
        """Sets the extractor and resets all states.

        Raises:
            RefusedInput: the score needs class logits, but the extractor does not return any.
        """
        if self.needs_logits and not widths.logits:
            raise RefusedInput(f"{type(self).__name__}: {_NO_LOGITS}")
        self.inception = network
        self._set_widths(widths)

    def _set_widths(self, widths: Widths) -> None:
        self.widths = widths
        self.add_states()  # adds the states in main memory
        self.to(self.device)

    # ---- methods that a subclass defines, besides `compute`

    def add_states(self) -> None:
        """Adds the states. Their sizes can depend on `self.widths`."""
        raise NotImplementedError

    def update_features(self, features: Float[Tensor, "n f"], logits: Float[Tensor, "n k"], real: bool) -> None:
        """Adds the features and class logits of images to the states."""
        raise NotImplementedError

    def too_few(self, num_real: float, num_fake: float) -> str | None:
        """Returns a message if there are too few images for the score, otherwise None. The message includes a remedy.

        Args:
            num_real, num_fake: number of real and of generated images.
        """
        fewest = min(num_real, num_fake)
        few = self.needs_covariance and fewest < 2
        return f"{fewest} image has no covariance: use at least 2." if few else None

    # ---- images

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Raises `RefusedInput`: no score is that of a single batch."""
        raise RefusedInput(
            f"{type(self).__name__} has no value of a single batch: add images with update(images, real=True or False),"
            " and call compute()."
        )

    def update(self, imgs: Tensor | Features, real: bool = False) -> None:
        """Adds images.

        Args:
            imgs: images (n, c, h, w), as uint8 or, with `normalize`, as floats in [0, 1]; or extracted `Features`.
            real: whether the images are real.

        Raises:
            RefusedInput: the images have an invalid type, range or shape.
            FloatingPointError: images or features are not finite.
        """
        self.update_features(*self.extracted(imgs), real)

    def extracted(self, imgs: Tensor | Features) -> Features:
        """Returns the features of images. See `update` for the argument."""
        if not isinstance(imgs, Features) and not hasattr(self, "inception"):
            raise RefusedInput(
                f"{type(self).__name__} has no extractor for images: pass one to the constructor, such as"
                " InceptionExtractor()."
            )
        features, logits = imgs if isinstance(imgs, Features) else self.inception(imgs)
        if self.widths == Widths():
            self._set_widths(Widths(features.shape[1], logits.shape[1]))
        return Features(features, logits)

    # ---- states, on one or more ranks

    @property
    def lists(self) -> list[str]:
        """Names of the list states. Synchronization gathers a list from all ranks into one tensor."""
        return [name for name, state in self.metric_state.items() if isinstance(state, list)]

    def rows(self, name: str) -> Float[Tensor, "n f"]:
        """Concatenates the rows of a list state into one tensor, stores it in the list, and returns it.

        After synchronization, the tensor contains the rows of all ranks.
        """
        state = self.metric_state[name]
        if not isinstance(state, list):
            return state
        if len(state) != 1:
            width = self.widths.logits if name.endswith("logits") else self.widths.features
            state[:] = [torch.cat([torch.empty(0, width), *(rows.cpu() for rows in state)])]
        state[:] = [state[0].cpu()]  # moving a score to a device moves its states
        return state[0]

    def sync(self, *args: Any, **kwargs: Any) -> None:
        """Gathers the states of all ranks. A rank without images contributes an empty tensor of the correct width."""
        for name in self.lists:
            setattr(self, name, [self.rows(name)])
        super().sync(*args, **kwargs)

    def reset(self) -> None:
        """Resets the states. The states of the real images are reset only with `reset_real_features`."""
        real = {} if self.reset_real_features else self.real_states()
        for name in self.lists:
            # assign new lists, because torchmetrics would clear lists that other metrics of a collection share
            setattr(self, name, [])
        super().reset()
        for name, state in real.items():
            setattr(self, name, state)

    def real_states(self) -> dict[str, Any]:
        """Returns the states of the real images by name."""
        return {name: state for name, state in self.metric_state.items() if name.startswith("real_")}

    def states_key(self) -> str:
        """Returns a key for the states. Scores with equal keys and the same extractor share their states.

        The key names the class that defines the states: the most derived class that overrides an attribute of a base
        class, except for attributes that do not change the states. The key also contains the constructor arguments of
        this class.
        """
        classes = type(self).__mro__
        overrides = (_names([cls]) & _names(classes[index + 1 :]) for index, cls in enumerate(classes))
        owner = next(cls for cls, names in zip(classes, overrides, strict=True) if names)
        owner = owner if issubclass(owner, FeatureScore) else type(self)  # a mixin class changes the states
        settings = self._settings_of(owner)
        return f"{owner.__module__}.{owner.__qualname__}{settings or ''}"

    # ---- checks whether the score can be measured

    def refuse_too_few(self, num_real: float, num_fake: float) -> None:
        """Raises `RefusedInput` if there are too few images."""
        reason = self.too_few(num_real, num_fake)
        if reason is not None:
            raise RefusedInput(f"{type(self).__name__}: {reason}")

    def unmeasurable(self, compared: Compared) -> str | None:
        """Returns the reason why the score cannot be measured, or None if it can be measured."""
        if self.needs_logits and not compared.widths.logits:
            return _NO_LOGITS
        return self.without_classes(compared) or self.too_few(compared.num_real, compared.num_fake)

    def without_classes(self, compared: Compared) -> str | None:
        """Returns the reason if the generator or the extractor lacks classes that the score needs, otherwise None.

        Users do not expect class scores in this case. `Evaluator` therefore does not report the reason.
        """
        if self.needs_known_classes and not compared.known_classes:
            return "the extractor does not know the classes of the images."
        if self.needs_classes and not compared.widths.classes:
            return "the generator has no classes."
        return None

    # ---- values and settings by name

    def named(self, value: Any) -> dict[str, float]:
        """Converts the output of `compute` to a dictionary with the names in `directions` as keys.

        Args:
            value: scalar, tuple of scalars, or dictionary of scalars.
        """
        values = value if isinstance(value, tuple) else (value,)
        named = value if isinstance(value, dict) else dict(zip(self.directions, values, strict=True))
        return {name: float(scalar) for name, scalar in named.items()}

    def keys(self, extractor: Extractor) -> dict[str, str]:
        """Returns the logged key for each name: `metric/<name>_<extractor>`."""
        suffix = f"_{extractor.name}" if self.with_extractor else ""
        return {name: f"metric/{name}{suffix}" for name in self.directions}

    def settings(self) -> dict[str, Any]:
        """Returns the constructor arguments of the subclasses for the protocol. Subclasses store them as attributes."""
        return self._settings_of(type(self))

    def _settings_of(self, last: type[FeatureScore]) -> dict[str, Any]:
        classes = [cls for cls in last.__mro__ if issubclass(cls, FeatureScore) and cls is not FeatureScore]
        names = dict.fromkeys(name for cls in reversed(classes) for name in inspect.signature(cls).parameters)
        return {name: vars(self)[name] for name in names if name not in inspect.signature(FeatureScore).parameters}


def _names(classes: Iterable[type]) -> set[str]:
    """Returns the names of the attributes of classes that can change the states of a score."""
    names = {name for cls in classes for name in vars(cls) if not (name.startswith("__") and name.endswith("__"))}
    return names - _WITHOUT_STATES


class StoredFeatures(FeatureScore):
    """Base class of scores that store the features of all real and generated images in main memory."""

    real_features: list[Tensor]
    fake_features: list[Tensor]
    _of_real: tuple[Any, Any] | None = None  # settings and digest of the real images, and what was computed from them

    def add_states(self) -> None:
        self.add_state("real_features", [], dist_reduce_fx="cat")
        self.add_state("fake_features", [], dist_reduce_fx="cat")

    def update_features(self, features: Float[Tensor, "n f"], logits: Float[Tensor, "n k"], real: bool) -> None:
        (self.real_features if real else self.fake_features).append(features.float().cpu())

    def stored(self) -> tuple[Float[Tensor, "n f"], Float[Tensor, "k f"]]:
        """Returns the features of the real and of the generated images.

        Raises:
            RefusedInput: there are too few images.
        """
        real, fake = self.rows("real_features"), self.rows("fake_features")
        self.refuse_too_few(len(real), len(fake))
        return real, fake

    def of_real(self, real: Float[Tensor, "n f"], compute: Callable[[Tensor], Value]) -> Value:
        """Returns `compute(real)`, reused while `real` stays the same."""
        key = self.settings(), digest_of({"real": real})
        if self._of_real is None or self._of_real[0] != key:
            self._of_real = key, compute(real)
        return self._of_real[1]


def gather(tensor: Tensor, group: Any = None) -> list[Tensor]:
    """Gathers a tensor from all ranks with torchmetrics. With nccl, tensors in main memory are sent via the GPU."""
    over_nccl = distributed.get_backend(group) == "nccl"
    device = torch.device("cuda", torch.cuda.current_device()) if over_nccl else torch.device("cpu")
    return [gathered.to(tensor.device) for gathered in gather_all_tensors(tensor.to(device), group)]
