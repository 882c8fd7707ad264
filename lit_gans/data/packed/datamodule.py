"""Base classes of sources of image files: packs them once, then serves from the accelerator, memory or disk."""

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
from torch.utils.data import Dataset

from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.identity import code_of
from lit_gans.common.names import composed
from lit_gans.common.paths import cache_folder
from lit_gans.common.progress import follow
from lit_gans.common.size import Size, as_size, sides, size_value
from lit_gans.data.base import ImageData, ImagesInMemory, Pairs
from lit_gans.data.decoding import MAX_PIXELS
from lit_gans.data.digests import Fingerprint, digest_of_parts, fingerprint, remembered
from lit_gans.data.files import OnError
from lit_gans.data.images import WHITE, Background, Crop, Depth, Frame, PairFrame, to_uint8, to_unit_range
from lit_gans.data.loader import ResumableLoader, StepSampler
from lit_gans.data.packed.format import Packed, Source, open_good, open_packed
from lit_gans.data.packed.writer import available_cores, pack

ClassWeights = Literal["balanced"] | dict[str, float]
Placement = Literal["auto", "device", "memory", "disk"]
_SHARE = 0.5  # fraction of the free memory that the images may take
_READER = 3  # version of the conversion of files to images: another one packs all images again
_DIGESTS = "digests.json"  # in the folder of packed images
_BATCH = 4096  # number of images that are read at once for a digest


class _MappedImages(ImagesInMemory):
    """Packed images, which each process that unpickles the dataset maps itself."""

    def __init__(self, path: Path, labels: Int64[Tensor, " n"], mirrors: bool) -> None:
        super().__init__(open_packed(path).images, labels, mirrors)
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return _MappedImages, (self.path, self.labels, self.mirrors)


class _Rows(Dataset):
    """Row indices of a step, for images that are stored on the accelerator."""

    def __init__(self, num_images: int) -> None:
        self.num_images = num_images

    def __len__(self) -> int:
        return self.num_images

    def __getitem__(self, indices: Int64[Tensor, " b"]) -> dict[str, Tensor]:
        return {"rows": indices}


class PackedData(ImageData):
    """Serves image files of any size and format as images of one size. Sources override `source` and `identity`.

    On first use, all files are decoded, resized and written to one folder in the cache folder. Order and flips depend
    only on (seed, epoch, image) and are the same for every placement.

    Args:
        image_size: height and width of the images: one number for squares, or [height, width].
        channels: 1 for grayscale, 3 for RGB, 4 for RGBA; a folder may have any number, in arrays (NPY) and TIFF files.
        dtype: `uint8`, or `float32`, which keeps the depth of 16-bit and floating-point files and takes four times the
            space.
        value_range: values of a file that become black and white, needed for files of floating-point numbers, of
            negative numbers and of more than 16 bits; values outside are clipped, and counted; null takes 0 and 255, or
            65535 for 16-bit files.
        crop: `center` crops to the largest central part with the aspect ratio of the images, a number to the central
            square of that many pixels, [height, width] to a central rectangle; `none` does not crop. Where the aspect
            ratio is not that of the images, it changes.
        background: red, green and blue, 0 to 255, of the background of transparent pictures, for 1 and 3 channels.
        class_weights: how often classes are shown: `balanced` shows each as often as every other; a mapping of class
            names to numbers, such as {cat: 1, dog: 3}, shows them in these proportions; null shows each image once an
            epoch.
        flip: whether to flip half of the images horizontally, by a random bit of (seed, epoch, image).
        max_pixels: largest number of pixels of a file, since a small file of many pixels can exhaust the memory; null
            for no limit.
        on_error: `raise` raises an error at the first unreadable file; `skip` skips such files and lists them.
        placement: where images are stored during training: on the accelerator (`device`), in main memory (`memory`), or
            memory-mapped from the packed images (`disk`); `auto` uses the first of these where the images fit into half
            of the free memory.
        cache: folder of packed images; null uses `LIT_GANS_CACHE`, or `lit_gans` in the user's cache if it is not set.
        batch_size, seed: see `ImageData`.
        num_workers: number of processes that gather batches; null uses 2 for `disk`, otherwise 0.

    Raises:
        RefusedInput: a value is invalid or, on first use, a file cannot be read.
    """

    possible_channels: tuple[int, ...] | None = (1, 3, 4)
    identified_by_content: ClassVar[bool] = False  # whether `identity` has a digest of all that is read

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
            raise RefusedInput(f"data.background={list(background)}: expected red, green and blue, each 0 to 255.")
        red, green, blue = background
        crop = crop if isinstance(crop, str) else as_size(crop, "crop")
        if value_range is not None and not value_range[0] < value_range[1]:
            raise RefusedInput(f"value_range={list(value_range)}: the second number must be greater.")
        bounds = None if value_range is None else (float(value_range[0]), float(value_range[1]))
        self.frame = Frame(self.image_size, channels, crop, (red, green, blue), dtype, bounds, max_pixels)
        if isinstance(class_weights, dict):  # in YAML, a name may be a number
            class_weights = {composed(str(name)): weight for name, weight in class_weights.items()}
        self.class_weights = class_weights
        self.flip, self.on_error, self.placement = flip, on_error, placement
        self.cache = cache_folder(cache)
        self._asked_workers = num_workers
        self._packed: Packed | None = None
        self._resident: ImagesInMemory | None = None

    # ---- what a source overrides

    def source(self) -> Source:
        """Returns the source to pack."""
        raise NotImplementedError

    def identity(self) -> dict[str, Any]:
        """Returns plain values that identify the content of the source, and determine the name of the packed images.

        A source of files has their `digest_of_files`, so that other files are packed again, and moved ones are not.
        """
        raise NotImplementedError

    def arrangement(self) -> dict[str, Any]:
        """Returns plain values, besides the packed images, that determine what a row serves; none by default."""
        return {}

    @property
    def packed_frame(self) -> Frame | PairFrame:
        """Converts what the source returns."""
        return self.frame

    @property
    def class_names(self) -> list[str]:
        """Names of the classes; their numbers, where they have no others."""
        return [str(number) for number in range(self.num_classes)]

    # ---- the packed images

    @property
    def packed_path(self) -> Path:
        """Folder of the packed images, which may not exist yet."""
        return self._path(self.identity())

    @property
    def packed(self) -> Packed:
        """Packed images, written on first use, and again if they are damaged."""
        if self._packed is None:
            self._packed = self._open(self.identity(), self.source)
        return self._packed

    def _path(self, identity: dict[str, Any]) -> Path:
        frame = self.packed_frame
        key = json.dumps([_READER, code_of(type(self)), identity, repr(frame), self.on_error], sort_keys=True)
        digest = hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
        size = "x".join(str(side) for side in dict.fromkeys(frame.shape[1:]))
        return self.cache / f"{type(self).__name__.lower()}-{size}-{digest}.packed"

    def _open(self, identity: dict[str, Any], source: Callable[[], Source], verify: bool = False) -> Packed:
        """Opens packed images, written on first use, and again if they are damaged."""
        path, about = self._path(identity), {"source": type(self).__name__, "identity": identity}
        return open_good(path, verify) or pack(path, source(), self.packed_frame, self.on_error, about)

    def prepare_data(self) -> None:
        self.packed  # noqa: B018 - one process per machine packs, the others open it

    # ---- digests of the packed images, which are computed once and stored beside them

    def digests(self) -> dict[str, str]:
        """Returns the digest of images and labels, and that of the files that they were made of, if it is known.

        Files that are packed again, elsewhere or by another version of Pillow, have at least one of both in common.
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
        """Returns digest, number and shape of all images of `real_batches`."""
        batches = type(self).real_batches
        if not batches.__module__.startswith("lit_gans."):  # of a user, whose code may change
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
        missing = [self.class_names[number] for number in sorted(empty) if weights[number]]
        if missing:
            raise RefusedInput(f"data.class_weights: there are no images of {', '.join(missing)}: use 0 for them.")
        return super()._sampler(weights=weights, labels=labels, **settings)

    def weights_of_classes(self) -> list[float]:
        """Returns the weight of each class.

        Raises:
            RefusedInput: there are no classes, a class is missing or unknown, or a weight is out of range.
        """
        names, given = self.class_names, self.class_weights
        if not names:
            raise RefusedInput("data.class_weights: the images have no classes: leave it out.")
        if not isinstance(given, dict):
            return [1.0] * len(names)
        if given.keys() != {*names}:
            wrong = ", ".join(sorted(given.keys() ^ {*names})[:5])
            raise RefusedInput(
                f"data.class_weights must name each of the {len(names)} classes, 0 leaves one out; missing or unknown:"
                f" {wrong}."
            )
        refuse_below(0, **{f"data.class_weights.{name}": weight for name, weight in given.items()})
        return [float(given[name]) for name in names]

    # ---- placement

    def make_dataset(self) -> ImagesInMemory:
        return _MappedImages(self.packed.path, self.packed.labels, self.flip)

    def placed(self, device: torch.device, num_processes: int = 1) -> str:
        """Returns where the images are stored: `device`, `memory` or `disk`.

        Args:
            device: device of the training.
            num_processes: number of training processes on this machine, each with its own copy in memory.
        """
        if self.placement != "auto":
            return self.placement
        num_bytes = self.packed.images.nbytes
        if device.type == "cuda" and num_bytes <= _SHARE * torch.cuda.mem_get_info(device)[0]:
            return "device"
        return "memory" if num_bytes * num_processes <= _SHARE * _free_memory() else "disk"

    def train_dataloader(self) -> ResumableLoader:
        device, num_processes = torch.device("cpu"), 1
        if self.trainer is not None:
            device, num_processes = self.trainer.strategy.root_device, max(self.trainer.num_devices, 1)
        place = self.placed(device, num_processes)
        if place != "disk":
            self._load(device if place == "device" else torch.device("cpu"))
        workers = self._asked_workers
        if workers is None:
            workers = min(2, available_cores()) if place == "disk" else 0
        dataset: Any = {"device": _Rows(len(self.dataset)), "memory": self._resident, "disk": self.dataset}[place]
        return ResumableLoader(dataset, self._sampler(), workers, device.type == "cuda", self._known_digests)

    def real_batches(
        self, batch_size: int = 256, start: int = 0, stop: int | None = None
    ) -> Iterator[UInt8[Tensor, "b c h w"]]:
        """Returns an iterator over every image once, with 8 bits, as metrics take them; see `ImageData`."""
        return map(in_8_bits, super().real_batches(batch_size, start, stop))

    def _load(self, device: torch.device) -> None:
        if self._resident is None or self._resident.images.device != device:
            # all images are read now anyway, so that damage is found; what was mapped before may be damaged
            identity = self.packed.about["identity"]
            self._packed, self._dataset = self._open(identity, self.source, verify=True), None
            images, labels = self.packed.images.to(device, copy=True), self.packed.labels.to(device)
            self._resident = ImagesInMemory(images, labels, self.flip)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Gathers a step on the accelerator, if the images are stored there."""
        return self._resident[batch["rows"]] if self._resident is not None and "rows" in batch else batch


def in_8_bits(images: Shaped[Tensor, "b c h w"]) -> UInt8[Tensor, "b c h w"]:
    """Returns packed images, uint8 or floats in [-1, 1], as uint8."""
    return images if images.dtype == torch.uint8 else to_uint8(to_unit_range(images))


class TranslationData(PackedData):
    """Packs images for translation, and apart from them those that are excluded from training. Subclasses override
    `source` and `identity`.

    Args:
        whole_size: height and width of whole images, of which the training takes random crops of `image_size`; null
            trains on whole images of `image_size`.
        **kwargs: see `PackedData`.

    Raises:
        RefusedInput: the crops do not fit into whole images.
    """

    def __init__(self, whole_size: Size | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.whole_size = self.image_size if whole_size is None else as_size(whole_size, "whole_size")
        if any(whole < side for whole, side in zip(sides(self.whole_size), sides(self.image_size), strict=True)):
            larger, crops = size_value(self.whole_size), size_value(self.image_size)
            raise RefusedInput(f"whole_size={larger}: crops of image_size={crops} do not fit into it.")
        self.frame = replace(self.frame, image_size=self.whole_size)

    def source(self, held_out: bool = False) -> Source:
        """Returns the images for training, or those that are excluded from it; all if none are."""
        raise NotImplementedError

    def identity(self, held_out: bool = False) -> dict[str, Any]:
        """Returns plain values that identify the content of `source`."""
        raise NotImplementedError

    @cached_property
    def packed_held_out(self) -> Packed:
        """Packed images that are excluded from training."""
        return self._open(self.identity(held_out=True), partial(self.source, held_out=True))


class PackedPairs(TranslationData):
    """Packs pairs, each as one image with the channels of both. The pictures of `source` are tuples of an input and its
    target.

    Args:
        input_channels: number of channels of the inputs; null takes `channels`, those of the targets.
        **kwargs: see `TranslationData`.
    """

    metrics = "none"  # translations are compared with their targets
    input_first = True  # whether the first picture of a pair is the input

    def __init__(self, input_channels: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._input_channels = self.channels if input_channels is None else input_channels

    @property
    def packed_frame(self) -> PairFrame:
        frames = replace(self.frame, channels=self._input_channels), self.frame
        return PairFrame(*(frames if self.input_first else frames[::-1]))

    @property
    def input_channels(self) -> int:
        """Number of channels of the inputs."""
        return self._input_channels

    @property
    def held_out(self) -> Pairs:
        """Pairs that are excluded from training; all pairs if none are held out."""
        return self.halves(self.packed_held_out.images)

    def halves(self, images: Shaped[Tensor, "b c2 h w"]) -> Pairs:
        """Splits packed pairs into inputs and targets."""
        first = self.input_channels if self.input_first else self.channels
        names = ("input", "image") if self.input_first else ("image", "input")
        return dict(zip(names, images.tensor_split([first], dim=1), strict=True))

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Gathers a step on the accelerator, if the images are stored there, and splits the pairs."""
        batch = super().on_after_batch_transfer(batch, dataloader_idx)
        return batch | self.halves(batch["image"])

    def arrangement(self) -> dict[str, Any]:
        return {"input_first": self.input_first, "input_channels": self.input_channels}

    def real_batches(
        self, batch_size: int = 256, start: int = 0, stop: int | None = None
    ) -> Iterator[UInt8[Tensor, "b c h w"]]:
        """Returns an iterator over the target of every training pair; see `ImageData`."""
        return (self.halves(images)["image"] for images in super().real_batches(batch_size, start, stop))


def _free_memory() -> float:
    """Returns the bytes of main memory that are free or can be freed; infinity if the system does not report them."""
    information = Path("/proc/meminfo")
    if not information.is_file():
        return float("inf")
    lines = dict(line.split(":", 1) for line in information.read_text(encoding="utf-8", errors="replace").splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024
