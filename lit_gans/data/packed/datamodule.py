"""Base classes of sources that pack image files once, and serve the images from the device, main memory or disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Int64, Shaped, UInt8
from torch import Tensor

from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.identity import code_of
from lit_gans.common.memory import free_memory
from lit_gans.common.names import composed, first_three
from lit_gans.common.paths import cache_folder
from lit_gans.common.progress import follow
from lit_gans.common.size import Size, as_size, sides, size_value
from lit_gans.data.base import SHARE, ImageData, ImagesInMemory, Pairs, Rows, fits_on
from lit_gans.data.class_names import names_or_indices
from lit_gans.data.decoding import MAX_PIXELS
from lit_gans.data.digests import Fingerprint, digest_of_parts, fingerprint, remembered
from lit_gans.data.files import OnError, installed_readers
from lit_gans.data.images import WHITE, Background, Crop, Depth, Frame, PairFrame, to_uint8, to_unit_range
from lit_gans.data.loader import ResumableLoader, StepSampler
from lit_gans.data.packed.format import Packed, Source, open_good, open_packed
from lit_gans.data.packed.writer import available_cores, pack

ClassWeights = Literal["balanced"] | dict[str, float]
Placement = Literal["auto", "device", "memory", "disk"]
_READER = 5  # version of the conversion from files to images; after a change, all images are packed again
_DIGESTS = "digests.json"  # name of a file in the folder of packed images
_BATCH = 4096  # number of images that are read at a time to compute a digest


class _MappedImages(ImagesInMemory):
    """Dataset of memory-mapped packed images. A process that unpickles the dataset maps the file again."""

    def __init__(self, path: Path, labels: Int64[Tensor, " n"], mirrors: bool = False) -> None:
        super().__init__(open_packed(path).images, labels, mirrors)
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return _MappedImages, (self.path, self.labels, self.mirrors)


class PackedData(ImageData):
    """Datamodule that serves image files of any size and format as images of a single size.

    Subclasses override `source` and `identity`. On first use, all files are decoded, resized and written to a folder in
    the cache folder. The order and the random flips depend only on (seed, epoch, image) and are the same for every
    placement.

    Args:
        image_size: height and width of the images: one number for square images, or [height, width].
        channels: 1 for grayscale, 3 for RGB, 4 for RGBA. A folder of arrays (NPY) or TIFF files can have any number of
            channels.
        dtype: `uint8`, or `float32`, which keeps the depth of 16-bit and floating-point files and needs four times as
            much space.
        value_range: stored values that become black and white. Required for files with floating-point numbers, negative
            numbers or more than 16 bits. Values outside of the range are clipped, and the number of such files is
            logged. null uses 0 and 255 for 8-bit files, and 0 and 65535 for 16-bit files.
        crop: `center` crops the largest central region that has the aspect ratio of the images, a number a central
            square of that side length in pixels, and [height, width] a central rectangle. `none` does not crop.
            Resizing distorts regions of another aspect ratio.
        background: color behind transparent pixels (red, green, blue), each from 0 to 255. Used only for 1 and 3
            channels.
        class_weights: relative frequencies of the classes. `balanced` samples all classes equally often, a mapping of
            class names to numbers, such as {cat: 1, dog: 3}, in these proportions. null uses each image once per epoch.
        flip: whether to flip half of the images horizontally, by a random bit that depends on (seed, epoch, image).
        max_pixels: maximum number of pixels of a file, because a small file with many pixels can exhaust the memory.
            null sets no limit.
        on_error: `raise` raises an error at the first unreadable file; `skip` skips unreadable files and lists them.
        placement: where the images are during training: on the accelerator (`device`), in main memory (`memory`), or
            memory-mapped on disk (`disk`). `auto` uses the first of these that has room for them in half of its free
            memory.
        cache: folder of packed images; null uses `LIT_GANS_CACHE`, or else `lit_gans` in the user's cache folder.
        batch_size, seed: see `ImageData`.
        num_workers: number of worker processes that load batches; null uses 2 workers for `disk`, otherwise 0.

    Raises:
        RefusedInput: an argument is invalid, or a file cannot be read on first use.
    """

    possible_channels: tuple[int, ...] | None = (1, 3, 4)
    identified_by_content: ClassVar[bool] = False  # whether `identity` contains a digest of everything that is read

    def __init__(
        self,
        image_size: Size = 64,
        channels: int = 3,
        dtype: Depth = "uint8",
        value_range: tuple[float, float] | None = None,
        crop: Crop = "center",
        background: Background = WHITE,
        class_weights: ClassWeights | None = None,
        flip: bool = False,
        max_pixels: int | None = MAX_PIXELS,
        on_error: OnError = "raise",
        placement: Placement = "auto",
        cache: str | None = None,
        batch_size: int = 64,
        num_workers: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(image_size, channels, batch_size, num_workers or 0, seed)
        refuse_below(1, max_pixels=max_pixels)
        if len(background) != 3 or not all(0 <= part <= 255 for part in background):
            raise RefusedInput(f"data.background={list(background)}: expected red, green and blue, each from 0 to 255.")
        red, green, blue = background
        crop = crop if isinstance(crop, str) else as_size(crop, "crop")
        bounds = None if value_range is None else (float(value_range[0]), float(value_range[1]))
        self.frame = Frame(self.image_size, channels, crop, (red, green, blue), dtype, bounds, max_pixels)
        if isinstance(class_weights, dict):  # YAML reads some names as numbers
            class_weights = {composed(str(name)): weight for name, weight in class_weights.items()}
        self.class_weights = class_weights
        self.flip, self.on_error, self.placement = flip, on_error, placement
        self.cache = cache_folder(cache)
        self._requested_workers = num_workers
        self._packed: Packed | None = None

    # ---- methods that sources override

    def source(self) -> Source:
        """Returns the source to pack."""
        raise NotImplementedError

    def identity(self) -> dict[str, Any]:
        """Returns plain values that identify the contents of the source. They determine the name of the packed images.

        A source of files includes their `digest_of_files`, so that changed files are packed again, but moved files are
        not.
        """
        raise NotImplementedError

    def arrangement(self) -> dict[str, Any]:
        """Returns the plain values that, together with the packed images, determine the contents of each row.

        By default, returns no values.
        """
        return {}

    @property
    def packed_frame(self) -> Frame | PairFrame:
        """Frame that converts the decoded images of the source."""
        return self.frame

    # ---- the packed images

    @property
    def packed_path(self) -> Path:
        """Path of the folder of packed images, even if it does not exist yet."""
        return self._path(self.identity())

    @property
    def packed(self) -> Packed:
        """Packed images. They are written on first access, and again if they are damaged."""
        if self._packed is None:
            self._packed = self._open(self.identity(), self.source)
        return self._packed

    def _path(self, identity: dict[str, Any]) -> Path:
        frame = self.packed_frame
        # files that were skipped because of a missing package are read once it is installed
        readers = installed_readers() if self.on_error == "skip" else []
        parts = [_READER, code_of(type(self)), identity, repr(frame), self.on_error, readers]
        key = json.dumps(parts, sort_keys=True)
        digest = hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
        size = "x".join(str(side) for side in dict.fromkeys(frame.shape[1:]))
        return self.cache / f"{type(self).__name__.lower()}-{size}-{digest}.packed"

    def _open(self, identity: dict[str, Any], source: Callable[[], Source], verify: bool = False) -> Packed:
        """Opens packed images. Writes them if they do not exist or are damaged."""
        path, about = self._path(identity), {"source": type(self).__name__, "identity": identity}
        return open_good(path, verify) or pack(path, source(), self.packed_frame, self.on_error, about)

    def prepare_data(self) -> None:
        self.packed  # noqa: B018 - one process per machine packs the images, which all processes then open

    # ---- digests of the packed images, which are computed once and stored in their folder

    def digests(self) -> dict[str, str]:
        """Returns the digest of images and labels and, if known, the digest of the files that were packed.

        If the same files are packed again, elsewhere or by another version of Pillow, at least one digest stays the
        same.
        """
        labels = ["torch.int64", *fingerprint([self.packed.labels])]
        images = [str(self.packed.images.dtype), *self._packed_fingerprint()]
        digests = {"images": digest_of_parts(image=images, label=labels, **self.arrangement())}
        source = digest_of_parts(pack=self.packed.path.name, **self.arrangement())
        return digests | ({"files": source} if self.identified_by_content else {})

    def _packed_fingerprint(self) -> Fingerprint:
        images = self.packed.images

        def read() -> Fingerprint:
            return fingerprint(follow("reading the packed images", images.split(_BATCH), len(images)))

        return Fingerprint(*remembered(self.packed.path / _DIGESTS, "images", read))

    def real_fingerprint(self) -> Fingerprint:
        """Returns the digest, the number and the shape of all images of `real_batches`."""
        batches = type(self).real_batches
        if not batches.__module__.startswith("lit_gans."):  # a user's method can change, so nothing is stored
            return super().real_fingerprint()
        if batches is PackedData.real_batches and self.packed.images.dtype == torch.uint8:
            return self._packed_fingerprint()
        key = json.dumps([batches.__qualname__, self.arrangement()], sort_keys=True)
        return Fingerprint(*remembered(self.packed.path / _DIGESTS, key, super().real_fingerprint))

    # ---- class weights

    def _sampler(self, **settings: Any) -> StepSampler:
        if self.class_weights is None:
            return super()._sampler(**settings)
        labels, weights = self.packed.labels, self.weights_of_classes()
        empty = {*range(len(weights))} - {*labels.tolist()}
        if self.class_weights == "balanced":
            weights = [float(number not in empty) for number in range(len(weights))]
        names = names_or_indices(self.class_names, self.num_classes)
        missing = [names[number] for number in sorted(empty) if weights[number]]
        if missing:
            raise RefusedInput(
                f"data.class_weights: there are no images of {first_three(missing)}: set the weight to 0."
            )
        return super()._sampler(weights=weights, labels=labels, **settings)

    def weights_of_classes(self) -> list[float]:
        """Returns the weight of each class.

        Raises:
            RefusedInput: there are no classes, a class is missing or unknown, or a weight is out of range.
        """
        names, weights = names_or_indices(self.class_names, self.num_classes), self.class_weights
        if not names:
            raise RefusedInput("data.class_weights: the images have no classes: leave it out.")
        if not isinstance(weights, dict):
            return [1.0] * len(names)
        if weights.keys() != {*names}:
            wrong = first_three(sorted(weights.keys() ^ {*names}))
            raise RefusedInput(
                f"data.class_weights must name each of the {len(names)} classes (a weight of 0 leaves a class out);"
                f" missing or unknown: {wrong}."
            )
        refuse_below(0, **{f"data.class_weights.{name}": weight for name, weight in weights.items()})
        if not any(weights.values()):
            raise RefusedInput("data.class_weights: all weights are 0: at least one must be greater than 0.")
        return [float(weights[name]) for name in names]

    # ---- placement

    def make_dataset(self) -> ImagesInMemory:
        return _MappedImages(self.packed.path, self.packed.labels)

    def placed(self, device: torch.device, num_processes: int = 1) -> str:
        """Returns where the images are stored during training: `device`, `memory` or `disk`.

        Args:
            device: device that is used for training.
            num_processes: number of training processes on this machine. Each process has its own copy in memory.
        """
        if self.placement != "auto":
            return self.placement
        num_bytes = self.packed.images.nbytes
        if fits_on(device, num_bytes):
            return "device"
        return "memory" if num_bytes * num_processes <= SHARE * free_memory() else "disk"

    def train_dataloader(self) -> ResumableLoader:
        device, num_processes = torch.device("cpu"), 1
        if self.trainer is not None:
            device, num_processes = self.trainer.strategy.root_device, max(self.trainer.num_devices, 1)
        placement = self.placed(device, num_processes)
        if placement != "disk":
            self._load(device if placement == "device" else torch.device("cpu"))
        workers = self._requested_workers
        if workers is None:
            workers = min(2, available_cores()) if placement == "disk" else 0
        dataset: Any = {"device": Rows(len(self.dataset)), "memory": self._resident, "disk": self.dataset}[placement]
        return ResumableLoader(dataset, self._sampler(), workers, device.type == "cuda", self._known_digests)

    def real_batches(
        self, batch_size: int = 256, start: int = 0, stop: int | None = None
    ) -> Iterator[UInt8[Tensor, "b c h w"]]:
        """Returns an iterator over batches of all images, converted to uint8 for metrics; see `ImageData`."""
        return map(in_8_bits, super().real_batches(batch_size, start, stop))

    def _load(self, device: torch.device) -> None:
        if not isinstance(self._resident, ImagesInMemory) or self._resident.images.device != device:
            # all images are read here anyway, so their checksums are verified; an earlier mapping might be damaged
            identity = self.packed.about["identity"]
            self._packed, self._dataset = self._open(identity, self.source, verify=True), None
            images, labels = self.packed.images.to(device, copy=True), self.packed.labels.to(device)
            self._resident = ImagesInMemory(images, labels, self.dataset.mirrors)


def in_8_bits(images: Shaped[Tensor, "b c h w"]) -> UInt8[Tensor, "b c h w"]:
    """Converts packed images, uint8 or floats in [-1, 1], to uint8."""
    return images if images.dtype == torch.uint8 else to_uint8(to_unit_range(images))


class TranslationData(PackedData):
    """Datamodule for image translation, which packs the training images and the held-out images separately.

    Subclasses override `source` and `identity`.

    Args:
        whole_size: height and width of the full-size images, from which training takes random crops of `image_size`.
            null trains on full-size images of `image_size`.
        **kwargs: see `PackedData`.

    Raises:
        RefusedInput: the crops are larger than the full-size images.
    """

    def __init__(self, whole_size: Size | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.whole_size = self.image_size if whole_size is None else as_size(whole_size, "whole_size")
        if any(whole < side for whole, side in zip(sides(self.whole_size), sides(self.image_size), strict=True)):
            larger, crops = size_value(self.whole_size), size_value(self.image_size)
            raise RefusedInput(f"whole_size={larger}: crops of image_size={crops} do not fit into this size.")
        self.frame = replace(self.frame, image_size=self.whole_size)

    def source(self, held_out: bool = False) -> Source:
        """Returns the source of the training images, or of the held-out images if `held_out` is true.

        If no images are held out, both sources contain all images.
        """
        raise NotImplementedError

    def identity(self, held_out: bool = False) -> dict[str, Any]:
        """Returns plain values that identify the contents of `source`."""
        raise NotImplementedError

    @cached_property
    def packed_held_out(self) -> Packed:
        """Packed held-out images, which are excluded from training."""
        return self._open(self.identity(held_out=True), partial(self.source, held_out=True))


class PackedPairs(TranslationData):
    """Datamodule for paired image translation, which packs each pair as one image with the channels of both images.

    The method `source` returns tuples of an input and its target, or of a target and its input if `input_first` is
    false.

    Args:
        input_channels: number of channels of the inputs; null uses `channels`, the number of channels of the targets.
        **kwargs: see `TranslationData`.
    """

    metrics = "none"  # translations are compared with their targets instead
    input_first = True  # whether the first image of a pair is the input

    def __init__(self, input_channels: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        channels = self.channels if input_channels is None else input_channels
        self._input_channels = self.checked_channels("input_channels", channels)

    @property
    def packed_frame(self) -> PairFrame:
        frames = replace(self.frame, channels=self._input_channels), self.frame
        return PairFrame(*(frames if self.input_first else frames[::-1]))

    @property
    def input_channels(self) -> int:
        """Number of channels of the input images."""
        return self._input_channels

    @property
    def held_out(self) -> Pairs:
        """Held-out pairs, which are excluded from training, or all pairs if no pairs are held out."""
        return self.halves(self.packed_held_out.images)

    def halves(self, images: Shaped[Tensor, "b c2 h w"]) -> Pairs:
        """Splits packed pairs into inputs and targets."""
        first = self.input_channels if self.input_first else self.channels
        names = ("input", "image") if self.input_first else ("image", "input")
        return dict(zip(names, images.tensor_split([first], dim=1), strict=True))

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Splits the pairs of a step into inputs and targets."""
        return batch | self.halves(batch["image"])

    def arrangement(self) -> dict[str, Any]:
        return {"input_first": self.input_first, "input_channels": self.input_channels}

    def real_batches(
        self, batch_size: int = 256, start: int = 0, stop: int | None = None
    ) -> Iterator[UInt8[Tensor, "b c h w"]]:
        """Returns an iterator over batches of the targets of all training pairs; see `ImageData`."""
        return (self.halves(images)["image"] for images in super().real_batches(batch_size, start, stop))
