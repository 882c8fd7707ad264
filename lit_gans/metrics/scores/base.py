"""Base class of scores: torchmetrics of the features of images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, distributed, nn
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors

from lit_gans.common.errors import RefusedInput
from lit_gans.data.images import to_uint8
from lit_gans.metrics.extractors.base import Extractor, on_white


class Features(NamedTuple):
    """Extracted features (n, f) and class logits (n, k) of images; k may be 0."""

    features: Float[Tensor, "n f"]
    logits: Float[Tensor, "n k"]


class Network(nn.Module):
    """Extractor of a score, or of several scores that share it, which is hidden from parameters and state dicts.

    So its weights are neither trained nor sharded, and never part of a checkpoint. It follows the images' device.

    Args:
        extractor: an extractor of this package, or any module that maps uint8 images (n, c, h, w) to features (n, f),
            or to features and class logits (n, k). It is set to evaluation mode.
        normalize: whether images are floats in [0, 1], which are rounded to uint8; otherwise uint8.
    """

    def __init__(self, extractor: nn.Module, normalize: bool = False) -> None:
        super().__init__()
        self.normalize = normalize
        self._extractor = (extractor.eval(),)  # a tuple is no submodule

    @torch.no_grad()
    def forward(self, images: Tensor) -> Features:
        """Returns the features of images.

        Raises:
            RefusedInput: images of another type, range or shape.
            FloatingPointError: images or features are not finite.
        """
        images = to_uint8(images) if self.normalize else images
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3, 4):
            raise RefusedInput(
                f"Images are {images.dtype} {tuple(images.shape)}, expected uint8 (n, c, h, w) with 1, 3 or 4 channels:"
                " lit_gans.data.images.to_uint8 converts floats in [0, 1], as does normalize=True."
            )
        (extractor,) = self._extractor
        output = extractor.to(images.device)(on_white(images) if images.shape[1] == 4 else images)
        features, logits = output if isinstance(output, tuple) else (output, output[:, :0])
        if not (torch.isfinite(features).all() and torch.isfinite(logits).all()):
            raise FloatingPointError("The extractor returned features that are not finite for finite images.")
        return Features(features, logits)

    def widths(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Returns the number of features and logits; extracts a noise image (c, h, w) if they are not declared."""
        (extractor,) = self._extractor
        if isinstance(extractor, Extractor) and extractor.num_features and extractor.num_logits is not None:
            return extractor.num_features, extractor.num_logits
        features, logits = self(self.probe(shape))
        return features.shape[1], logits.shape[1]

    def probe(self, shape: tuple[int, ...]) -> Tensor:
        """Returns a noise image (1, c, h, w), the same in every run."""
        image = torch.randint(256, (1, *shape), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
        return image / 255 if self.normalize else image


@dataclass(frozen=True)
class Widths:
    """Widths of features and logits, which the states of a score depend on."""

    features: int = 0
    logits: int = 0


class FeatureScore(Metric):
    """Compares generated with real images by their features, as a torchmetrics `Metric`.

    Subclasses define `add_states`, `update_features` and `compute`. States have `real_` or `fake_` in front of their
    names. States that are lists hold rows in main memory, are gathered in the order of the ranks, and may be empty on
    some ranks.

    Args:
        feature: extractor, see `Network`; None leaves it to an `Evaluator`, or to `update` with `Features`.
        normalize: whether images are floats in [0, 1], which are rounded to uint8; otherwise uint8.
        reset_real_features: whether `reset` also resets the states of the real images.
        seed: seed of splits and subsets, which use no global random numbers.
        input_img_size: channels, height and width of an image that determines undeclared widths of `feature`.
        kwargs: arguments of `torchmetrics.Metric`.

    Attributes:
        directions: whether the best value of each name is the `min` or the `max`; None for neither, such as a spread.
        needs_logits: whether the score requires an extractor with class logits.
        with_extractor: whether keys end with the extractor's name.
    """

    is_differentiable = False
    higher_is_better: bool = False
    full_state_update = False
    plot_lower_bound = 0.0
    feature_network = "inception"  # the attribute that torchmetrics' FeatureShare replaces

    directions: ClassVar[dict[str, str | None]]
    needs_logits: ClassVar[bool] = False
    with_extractor: ClassVar[bool] = True

    inception: nn.Module

    def __init__(
        self,
        feature: nn.Module | None = None,
        normalize: bool = False,
        reset_real_features: bool = True,
        seed: int = 0,
        input_img_size: tuple[int, int, int] = (3, 64, 64),
        **kwargs: Any,
    ) -> None:
        Metric.__init__(self, **{"dist_sync_fn": gather, **kwargs})  # not those of torchmetrics' scores
        self.normalize, self.reset_real_features, self.seed = normalize, reset_real_features, seed
        self.widths = Widths()
        if feature is None:
            self.add_states()
        else:
            network = Network(feature, normalize)
            self.attach(network, Widths(*network.widths(input_img_size)))

    def attach(self, network: nn.Module, widths: Widths) -> None:
        """Sets the extractor and resets all states."""
        self.inception, self.widths = network, widths
        self.add_states()
        self.to(self.device)

    def add_states(self) -> None:
        """Adds the states, whose sizes may depend on `self.widths`."""
        raise NotImplementedError

    def update(self, imgs: Tensor | Features, real: bool = False) -> None:
        """Adds images.

        Args:
            imgs: uint8 (n, c, h, w), or floats in [0, 1] with `normalize`; or features that are already extracted.
            real: whether the images are real.

        Raises:
            RefusedInput: images of another type, range or shape, or a score without an extractor.
            FloatingPointError: images or features are not finite.
        """
        if not isinstance(imgs, Features) and "inception" not in self._modules:
            raise RefusedInput(f"{type(self).__name__}: give an extractor, feature=..., or Features instead of images.")
        features, logits = imgs if isinstance(imgs, Features) else self.inception(imgs)
        if self.widths == Widths():
            self.widths = Widths(features.shape[1], logits.shape[1])
            self.add_states()
        self.update_features(features, logits, real)

    def update_features(self, features: Float[Tensor, "n f"], logits: Float[Tensor, "n k"], real: bool) -> None:
        """Adds the features and class logits of images to the states."""
        raise NotImplementedError

    def sync(self, *args: Any, **kwargs: Any) -> None:
        """Gathers the states of all ranks; ranks without images contribute rows of the right width."""
        for name, state in self.metric_state.items():
            if isinstance(state, list) and not state:
                width = self.widths.logits if name.endswith("logits") else self.widths.features
                state.append(torch.empty(0, width))
        super().sync(*args, **kwargs)

    def reset(self) -> None:
        """Resets the states, and those of the real images only with `reset_real_features`."""
        kept = {} if self.reset_real_features else self.real_states()
        super().reset()
        self.load_states(kept)

    def real_states(self) -> dict[str, Tensor | list[Tensor]]:
        """Returns the states of the real images, by name."""
        states = {name: state for name, state in self.metric_state.items() if name.startswith("real_")}
        return {name: list(state) if isinstance(state, list) else state for name, state in states.items()}

    def load_states(self, states: dict[str, Tensor | list[Tensor]]) -> None:
        """Replaces states, by name."""
        for name, state in states.items():
            setattr(self, name, state)

    def accumulate(self, name: str, value: Tensor) -> None:
        """Adds to a state: a sum, or rows, which are moved to main memory."""
        state = self.metric_state[name]
        if isinstance(state, list):
            state.append(value.float().cpu())
        else:
            setattr(self, name, state + value)

    def rows(self, name: str) -> Float[Tensor, "n f"]:
        """Returns all rows of a state that is a list, and keeps them as one tensor."""
        state = self.metric_state[name]
        if isinstance(state, list) and len(state) != 1:
            state[:] = [torch.cat(state) if state else torch.empty(0, self.widths.features)]
        return state[0] if isinstance(state, list) else state

    def too_few(self, num_real: int | None, num_fake: int) -> str | None:
        """Returns why there are too few images for the score and what would help, or None if there are enough.

        Args:
            num_real: number of real images; None if it is not known yet.
            num_fake: number of generated images.
        """
        return None

    def refuse_too_few(self, num_real: int | None, num_fake: int) -> None:
        """Raises `RefusedInput` if there are too few images."""
        reason = self.too_few(num_real, num_fake)
        if reason is not None:
            raise RefusedInput(f"{type(self).__name__}: {reason}")


def gather(tensor: Tensor, group: Any = None) -> list[Tensor]:
    """Gathers a tensor of all ranks with torchmetrics, also from main memory over nccl."""
    over_nccl = distributed.get_backend(group) == "nccl"
    device = torch.device("cuda", torch.cuda.current_device()) if over_nccl else torch.device("cpu")
    return [other.to(tensor.device) for other in gather_all_tensors(tensor.to(device), group)]


def smaller(num_real: int | None, num_fake: int) -> int:
    """Returns the smaller number of images, or the number of generated images if the other is unknown."""
    return num_fake if num_real is None else min(num_real, num_fake)
