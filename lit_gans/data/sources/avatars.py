"""Cartoon faces whose attributes are known, drawn without a download: with classes; in pairs with their outlines; and
with and without glasses, beard or hat, for translation without pairs whose true pairs are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from jaxtyping import Int64
from PIL import Image, ImageFilter
from torch import Tensor

from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.size import Size, sides
from lit_gans.data import faces
from lit_gans.data.faces import ATTRIBUTES, NONE, Face, Label, Rule
from lit_gans.data.images import Background
from lit_gans.data.packed.datamodule import PackedData, PackedPairs
from lit_gans.data.packed.format import Packed, Source
from lit_gans.data.packed.unpaired import TruePairs

Removed = Literal["glasses", "beard", "hat"]
_HELD_OUT = 10  # of so many faces, one is held out
_MOST_DRAWS = 1000  # number of faces that are drawn at most for one that a rule admits
_OVERSAMPLING = 4  # pixels drawn in each direction for one pixel of an outline
_EDGE = 24  # difference of two neighboring pixels, 0 to 255, that belongs to an outline
_LINE = 3  # width of an outline, in oversampled pixels


class Faces(Source):
    """Draws faces, each a function of a seed and its index. Their labels are the codes of all attributes.

    Args:
        indices: index of each face.
        image_size: height and width of the images.
        background: color of the background; None for a transparent one.
        seed: seed of the attributes.
        held_out: faces with all these options are not drawn; None draws all faces.
    """

    def __init__(
        self,
        indices: range,
        image_size: Size,
        background: Background | None,
        seed: int = 0,
        held_out: Rule | None = None,
    ) -> None:
        self.indices, self.image_size, self.background = indices, image_size, background
        self.seed, self.held_out = seed, held_out

    def __len__(self) -> int:
        return len(self.indices)

    def name(self, index: int) -> str:
        return f"avatar {self.indices[index]}"

    def attributes(self, index: int) -> Face:
        """Returns the attributes of a face, with those that cannot be seen.

        Raises:
            RefusedInput: all of many faces drawn at random are held out.
        """
        for attempt in range(_MOST_DRAWS):
            face = self.drawn(index, attempt)
            if self.held_out is None or not faces.matches(faces.visible(face), self.held_out):
                return face
        raise RefusedInput(
            f"data.held_out={dict(self.held_out or {})} leaves no face: name options that some faces lack; null leaves"
            " none out."
        )

    def drawn(self, index: int, attempt: int) -> Face:
        """Returns a face at random, another for each attempt."""
        return faces.draw(self.seed, self.indices[index], attempt)

    def picture(self, index: int, notes: list[str]) -> Any:
        return faces.render(faces.visible(self.attributes(index)), self.image_size, self.background)

    def label(self, index: int) -> int:
        return faces.code_of(faces.visible(self.attributes(index)))


class _OutlinesAndFaces(Faces):
    """Draws each face twice: its outlines in black, and in color."""

    def picture(self, index: int, notes: list[str]) -> tuple[Image.Image, ...]:
        height, width = sides(self.image_size)
        large = _OVERSAMPLING * height, _OVERSAMPLING * width
        face = faces.visible(self.attributes(index))
        drawing = faces.render(face, large, self.background)
        values = np.asarray(drawing).astype(np.int16)
        edges = np.zeros(large, bool)
        edges[1:] |= np.abs(values[1:] - values[:-1]).max(2) > _EDGE
        edges[:, 1:] |= np.abs(values[:, 1:] - values[:, :-1]).max(2) > _EDGE
        lines = Image.fromarray(np.where(edges, 0, 255).astype(np.uint8)).filter(ImageFilter.MinFilter(_LINE))
        return lines.convert("RGB").reduce(_OVERSAMPLING), drawing.reduce(_OVERSAMPLING)


class _With(Faces):
    """Draws faces that have an attribute, which is drawn from its options other than `none`, or that lack it.

    Args:
        attribute: name of the attribute.
        present: whether the faces have it; if not, they are the same faces without it.
        *args: arguments of `Faces`.
    """

    def __init__(self, attribute: str, present: bool, *args: Any) -> None:
        super().__init__(*args)
        self.attribute, self.present = attribute, present

    def drawn(self, index: int, attempt: int) -> Face:
        """Returns the first face at random that shows the attribute, or the same face without it."""
        for number in range(_MOST_DRAWS):
            face = faces.draw(self.seed, self.indices[index], attempt, number)
            if faces.visible(face)[self.attribute] != NONE:
                return face if self.present else face | {self.attribute: NONE}
        raise AssertionError("a face shows an attribute with a probability of at least 0.2")


class _FaceData(PackedData):
    """Base class of the sources of faces.

    Args:
        num_images: number of faces.
        image_size: see `PackedData`; faces fit the shorter side.
        faces_seed: seed of the faces.
        **kwargs: see `PackedData`; `crop` has no effect.
    """

    metrics = "avatars"
    rule: Rule | None = None  # faces with all its options are not drawn
    fewest: ClassVar[int] = 1  # faces

    def __init__(self, *, num_images: int = 10_000, image_size: Size = 64, faces_seed: int = 0, **kwargs: Any) -> None:
        super().__init__(image_size=image_size, **kwargs)
        refuse_below(self.fewest, **{"data.num_images": num_images})
        self.num_images, self.faces_seed = num_images, faces_seed
        faces.identity_of_faces()  # raises without the packages

    def _arguments(self, indices: range) -> tuple[Any, ...]:
        """Returns the arguments of `Faces`."""
        background = None if self.channels == 4 else self.frame.background
        assert self.frame.image_size is not None
        return indices, self.frame.image_size, background, self.faces_seed, self.rule

    def _identity(self) -> dict[str, Any]:
        found = {"num_images": self.num_images, "faces_seed": self.faces_seed, "held_out": self.rule}
        return faces.identity_of_faces() | found


class Avatars(_FaceData):
    """Cartoon faces whose attributes are known, such as hat, hair, glasses and beard (Avataaars by Pablo Stanley).

    Each face is a function of `faces_seed` and its index. Attributes are independent. 30 % of the faces have a hat,
    40 % glasses, 30 % a beard; their kinds are equally likely. What cannot be seen, such as hair under a hat, counts as
    `none`.

    Args:
        label: attribute whose options are the classes; null for none.
        held_out: option, or list of options, by attribute: faces with all of them are not drawn, such as
            {hat: winter_hat_1, glasses: round}.
        **kwargs: see `PackedData`; `crop` has no effect.

    Raises:
        RefusedInput: the packages of the extra `avatars` are not installed, an attribute or an option does not exist,
            or no face is left.
    """

    def __init__(
        self, *, label: Label | None = None, held_out: dict[str, str | list[str]] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if label is not None:
            faces.raise_if_no_attribute(label, "data.label")
        self.label, self.rule = label, held_out
        self.num_classes = len(self.class_names)
        if held_out is not None:
            faces.raise_if_unknown(held_out, "data.held_out")
            Faces(range(1), 1, None, self.faces_seed, held_out).attributes(0)  # raises if the rule leaves none

    @property
    def class_names(self) -> list[str]:
        return [] if self.label is None else list(ATTRIBUTES[self.label].options)

    def source(self) -> Source:
        return Faces(*self._arguments(range(self.num_images)))

    def identity(self) -> dict[str, Any]:
        return self._identity()

    @property
    def attributes(self) -> dict[str, Int64[Tensor, " n"]]:
        """Number of the option of each attribute, for each face; see `lit_gans.data.faces.ATTRIBUTES`."""
        codes = super()._open(self.identity(), self.source).labels.numpy()
        return {name: torch.from_numpy(numbers) for name, numbers in faces.attributes_of(codes).items()}

    def _open(self, identity: dict[str, Any], source: Callable[[], Source], verify: bool = False) -> Packed:
        """Opens packed images, with the classes of `label` instead of the codes of all attributes."""
        packed = super()._open(identity, source, verify)
        if self.label is None:
            return replace(packed, labels=torch.zeros_like(packed.labels))
        classes = faces.attributes_of(packed.labels.numpy())[self.label]
        return replace(packed, labels=torch.from_numpy(classes))


class AvatarOutlines(_FaceData, PackedPairs):
    """Pairs of a face's outlines and the face in color (see `Avatars`). Every tenth pair is held out.

    Args:
        **kwargs: see `Avatars`, `TranslationData` and `PackedData`; `crop` has no effect.

    Raises:
        RefusedInput: see `Avatars`.
    """

    possible_channels = (1, 3)
    fewest = _HELD_OUT  # so that one pair is held out

    def source(self, held_out: bool = False) -> Source:
        last = self.num_images // _HELD_OUT
        indices = range(self.num_images - last, self.num_images) if held_out else range(self.num_images - last)
        return _OutlinesAndFaces(*self._arguments(indices))

    def identity(self, held_out: bool = False) -> dict[str, Any]:
        return self._identity() | {"excluded": held_out}


class AvatarChange(_FaceData, TruePairs):
    """Faces with an attribute (A) and other faces without it (B), for translation without pairs.

    A tenth of the faces is held out, each with and without the attribute: the true translation is known.

    Args:
        attribute: the attribute that A has and B lacks.
        **kwargs: see `Avatars`, `UnpairedData` and `PackedData`; `num_images` counts both domains; `crop` has no
            effect.

    Raises:
        RefusedInput: see `Avatars`.
    """

    fewest = _HELD_OUT  # so that one face is held out

    def __init__(self, *, attribute: Removed = "glasses", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        faces.raise_if_no_attribute(attribute, "data.attribute", get_args(Removed))
        self.attribute = attribute

    def domains(self, held_out: bool = False) -> tuple[Source, Source]:
        last = self.num_images // _HELD_OUT
        if held_out:
            rows = range(self.num_images - last, self.num_images)
            with_it, without = rows, rows
        else:
            with_it, without = (range(first, self.num_images - last, 2) for first in (0, 1))
        return (
            _With(self.attribute, True, *self._arguments(with_it)),
            _With(self.attribute, False, *self._arguments(without)),
        )

    def identity(self, held_out: bool = False) -> dict[str, Any]:
        return self._identity() | {"attribute": self.attribute, "excluded": held_out}
