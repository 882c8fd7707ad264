"""Source of images in two folders, for unpaired translation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import Size
from lit_gans.data.digests import digest_of_files, digest_of_parts
from lit_gans.data.files import find_images
from lit_gans.data.packed.unpaired import UnpairedData
from lit_gans.data.sources.folder import Files, part_of


class Unpaired(UnpairedData):
    """Images of two domains, of any size and format, in two folders. They are packed once, like the images of `Folder`.

    The folders are `A/` and `B/`, each of which can contain `train/` and either `val/` or `test/`. Alternatively, the
    folders are `trainA/`, `trainB/`, `testA/` and `testB/`, as in the datasets of CycleGAN.

    Args:
        root: path of the folder that contains these folders.
        image_size, batch_size: see `PackedData`. The default batch size of 1 follows the CycleGAN paper.
        **kwargs: see `UnpairedData`, `TranslationData` and `PackedData`.

    Raises:
        RefusedInput: a folder does not exist or contains no images.
    """

    possible_channels = None
    identified_by_content = True

    def __init__(self, root: str, image_size: Size = 256, batch_size: int = 1, **kwargs: Any) -> None:
        super().__init__(image_size=image_size, batch_size=batch_size, **kwargs)
        self.root = Path(root).expanduser()
        self._domains = {
            held_out: (self._files("A", held_out), self._files("B", held_out)) for held_out in (False, True)
        }

    def domains(self, held_out: bool = False) -> tuple[Files, Files]:
        return self._domains[held_out]

    def identity(self, held_out: bool = False) -> dict[str, Any]:
        domains = self.domains(held_out)
        return {
            "files": [digest_of_files(files.paths, self.cache) for files in domains],
            "left_out": [digest_of_parts(lines=files.left_out) for files in domains],
        }

    def _files(self, domain: str, held_out: bool) -> Files:
        train, test = self.root / f"train{domain}", self.root / f"test{domain}"
        if os.path.isdir(train):
            folder = test if held_out and os.path.isdir(test) else train
        elif os.path.isdir(self.root / domain):
            folder = part_of(self.root / domain, held_out)
        else:
            raise RefusedInput(
                f"data.root={self.root}: it contains no folder {domain} or train{domain}: unpaired images are in the"
                " folders A and B, or trainA and trainB."
            )
        found = find_images(folder)
        return Files(found.images, decoding=self.frame.decoding, left_out=found.left_out(self.on_error, self.root))
