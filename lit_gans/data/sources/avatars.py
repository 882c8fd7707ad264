"""Sources of cartoon faces with known attributes, which are rendered locally and need no download.

`Avatars` has classes, and `AvatarOutlines` has pairs of outlines and faces. `AvatarChange` has faces with and without
glasses, a beard or a hat, for unpaired translation with known true pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal

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
_HELD_OUT = 10  # one in 10 faces is held out
_MOST_DRAWS = 1000  # maximum number of attempts to sample a face that a rule allows
_OVERSAMPLING = 4  # number of rendered pixels per pixel of an outline image, in each direction
_EDGE = 24  # minimum difference between neighboring pixels at an outline, on a scale of 0 to 255
_LINE = 3  # width of an outline, in rendered pixels


class Faces(Source):
    """Source of rendered faces. A face depends only on the seed and its index. Its label encodes all attributes.

    Args:
        indices: index of each face.
        image_size: height and width of the images.
        background: color of the background; None renders a transparent background.
        seed: random seed of the attributes.
        held_out: rule that excludes faces: a face that matches the rule is not sampled. None excludes no faces.
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
        """Returns all attributes of a face, including attributes that cannot be seen.

        Raises:
            RefusedInput: many faces were sampled, and all of them are held out.
        """
        for attempt in range(_MOST_DRAWS):
            face = self.drawn(index, attempt)
            if self.held_out is None or not faces.matches(faces.visible(face), self.held_out):
                return face
        raise RefusedInput(
            f"data.held_out={dict(self.held_out or {})} leaves no face: name options that some faces lack, or use null"
            " to hold out no faces."
        )

    def drawn(self, index: int, attempt: int) -> Face:
        """Samples a face. Each attempt gives a different random face."""
        return faces.draw(self.seed, self.indices[index], attempt)

    def picture(self, index: int, notes: list[str]) -> Any:
        return faces.render(faces.visible(self.attributes(index)), self.image_size, self.background)

    def label(self, index: int) -> int:
        return faces.code_of(faces.visible(self.attributes(index)))


class _OutlinesAndFaces(Faces):
    """Source of pairs: the black outlines of a face, and the face in color."""

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
    """Source of faces that all show an attribute, or of the same faces without the attribute.

    Args:
        attribute: name of the attribute.
        present: whether the faces have the attribute. If false, the attribute is removed from the same faces.
        *args: arguments of `Faces`.
    """

    def __init__(self, attribute: str, present: bool, *args: Any) -> None:
        super().__init__(*args)
        self.attribute, self.present = attribute, present

    def drawn(self, index: int, attempt: int) -> Face:
        """Samples faces until one shows the attribute, and removes the attribute unless `present` is true."""
        for number in range(_MOST_DRAWS):
            face = faces.draw(self.seed, self.indices[index], attempt, number)
            if faces.visible(face)[self.attribute] != NONE:
                return face if self.present else face | {self.attribute: NONE}
        raise AssertionError("a face shows an attribute with a probability of at least 0.2")


class _FaceData(PackedData):
    """Base class of all sources of faces.

    Args:
        num_images: number of faces.
        image_size: see `PackedData`. In rectangular images, faces fit the shorter side.
        faces_seed: random seed of the faces.
        **kwargs: see `PackedData`. `crop` is not supported.
    """

    metrics = "avatars"
    license, attribution = "other", f"{faces.ATTRIBUTION}. Free for personal and commercial use"
    rule: Rule | None = None  # faces that match the rule are not sampled
    fewest: ClassVar[int] = 1  # minimum number of faces

    def __init__(self, *, num_images: int = 10_000, image_size: Size = 64, faces_seed: int = 0, **kwargs: Any) -> None:
        super().__init__(image_size=image_size, **kwargs)
        refuse_below(self.fewest, **{"data.num_images": num_images})
        self.num_images, self.faces_seed = num_images, faces_seed
        if self.frame.crop != "center":
            raise RefusedInput("data.crop is not supported, because faces are drawn at image_size: leave it out.")
        faces.identity_of_faces()  # raises an error if a package is missing

    def _arguments(self, indices: range) -> tuple[Any, ...]:
        """Returns the arguments of `Faces` for the given indices."""
        background = None if self.channels == 4 else self.frame.background
        assert self.frame.image_size is not None
        return indices, self.frame.image_size, background, self.faces_seed, self.rule

    def _identity(self) -> dict[str, Any]:
        settings = {"num_images": self.num_images, "faces_seed": self.faces_seed, "held_out": self.rule}
        return faces.identity_of_faces() | settings


class Avatars(_FaceData):
    """Cartoon faces with known attributes, such as hat, hair, glasses and beard (Avataaars by Pablo Stanley).

    A face depends only on `faces_seed` and its index. The attributes are independent. Of all faces, 30 % have a hat,
    40 % have glasses, and 30 % have a beard. All kinds of hats, glasses and beards are equally likely. Attributes that
    cannot be seen, such as hair under a hat, count as `none`; see `lit_gans.data.faces.visible` for two exceptions.

    Args:
        label: attribute whose options are the classes; null trains without classes.
        held_out: mapping of attributes to an option, or to a list of options. Faces that match every entry, such as
            {hat: winter_hat_1, glasses: round}, are excluded from the data.
        **kwargs: see `PackedData`. `crop` is not supported.

    Raises:
        RefusedInput: the packages of the extra `avatars` are not installed, an attribute or an option does not exist,
            or `held_out` excludes all faces, or none, or a class.
    """

    def __init__(
        self, *, label: Label | None = None, held_out: dict[str, str | list[str]] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.label, self.rule = label, held_out
        self.num_classes = len(self.class_names)
        if held_out is not None:
            faces.raise_if_unknown(held_out, "data.held_out")
            if not faces.can_match(held_out):
                raise RefusedInput(
                    f"data.held_out={held_out} excludes no face, because no face shows these options together: use"
                    " other options."
                )
            if label is not None and not all(
                faces.leaves(held_out, label, option) for option in faces.several(held_out.get(label, []))
            ):
                raise RefusedInput(
                    f"data.held_out={held_out} leaves classes of data.label={label} without faces: hold out"
                    " combinations with other attributes."
                )
            # raises an error if the rule excludes all faces
            Faces(range(1), 1, None, self.faces_seed, held_out).attributes(0)

    @property
    def class_names(self) -> list[str]:  # type: ignore[override]
        return [] if self.label is None else list(ATTRIBUTES[self.label].options)

    def source(self) -> Source:
        return Faces(*self._arguments(range(self.num_images)))

    def identity(self) -> dict[str, Any]:
        return self._identity()

    @property
    def attributes(self) -> dict[str, Int64[Tensor, " n"]]:
        """Option indices of each attribute, one index per face; see `lit_gans.data.faces.ATTRIBUTES`."""
        codes = super()._open(self.identity(), self.source).labels.numpy()
        return {name: torch.from_numpy(numbers) for name, numbers in faces.attributes_of(codes).items()}

    def _open(self, identity: dict[str, Any], source: Callable[[], Source], verify: bool = False) -> Packed:
        """Opens packed images, and replaces the codes of all attributes by the classes of the attribute `label`."""
        packed = super()._open(identity, source, verify)
        if self.label is None:
            return replace(packed, labels=torch.zeros_like(packed.labels))
        classes = faces.attributes_of(packed.labels.numpy())[self.label]
        return replace(packed, labels=torch.from_numpy(classes))


class AvatarOutlines(_FaceData, PackedPairs):
    """Pairs of black outlines of a face and the face in color; see `Avatars`. A tenth of the pairs is held out.

    Args:
        **kwargs: see `Avatars`, `TranslationData` and `PackedData`. `crop` is not supported.

    Raises:
        RefusedInput: see `Avatars`.
    """

    possible_channels = (1, 3)
    fewest = _HELD_OUT  # ensures that at least one pair is held out

    def source(self, held_out: bool = False) -> Source:
        last = self.num_images // _HELD_OUT
        indices = range(self.num_images - last, self.num_images) if held_out else range(self.num_images - last)
        return _OutlinesAndFaces(*self._arguments(indices))

    def identity(self, held_out: bool = False) -> dict[str, Any]:
        return self._identity() | {"excluded": held_out}


class AvatarChange(_FaceData, TruePairs):
    """Faces with an attribute (domain A) and other faces without the attribute (domain B), for unpaired translation.

    A tenth of the faces is held out. A held-out face is rendered both with and without the attribute, so that the true
    translation is known. Without a hat, the hair shows, and in a few percent of the faces also a beard or glasses.

    Args:
        attribute: attribute that the faces in A have and the faces in B lack.
        **kwargs: see `Avatars`, `UnpairedData` and `PackedData`. `num_images` is the number of faces in both domains
            together. `crop` is not supported.

    Raises:
        RefusedInput: see `Avatars`.
    """

    fewest = _HELD_OUT  # ensures that at least one face is held out

    def __init__(self, *, attribute: Removed = "glasses", **kwargs: Any) -> None:
        super().__init__(**kwargs)
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
