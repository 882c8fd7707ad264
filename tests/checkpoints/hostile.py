"""Good files of every kind that is read from others or again by a later run, and what reads them; what runs code if it
is believed, and random damage, from a seed.
"""

import ast
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.checkpoints.format import CheckpointFiles, read_checkpoint, to_plain
from lit_gans.cli.commands.compare import _read
from lit_gans.config.load import load
from lit_gans.config.registry import gans
from lit_gans.data.packed.format import open_packed
from lit_gans.data.sources.folder import Folder
from lit_gans.export.safetensors import save_networks
from lit_gans.metrics import cache
from lit_gans.metrics.extractors.weights import read_weights

from .killed_saves import save_file, save_folder

SMALL = {"image_size": 16, "channels": 1, "generator_width": 2, "discriminator_width": 2}


class Reader(NamedTuple):
    """How a good file or folder is made, what reads it, and which of its files is damaged.

    A share of the mutations is refused at least: the others are bytes between entries, of a comment or of a value. None
    is ever refused of a record that a run can do without.
    """

    write: Callable[[Path], Any]
    read: Callable[[Path], Any]
    inside: str | None = None
    refused: float = 0.8


def packed_folder(path):
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(path.parent / "one.png")
    data = Folder(str(path.parent), image_size=8, cache=str(path.parent / "cache"))
    data.packed.path.rename(path)


def content_of_a_module():
    module = gans()["dcgan"](**SMALL)
    content = {"global_step": 3, "state_dict": module.state_dict(), "hyper_parameters": to_plain(dict(module.hparams))}
    module.on_save_checkpoint(content)
    return content


def module_file(path):
    CheckpointFiles().save_checkpoint(content_of_a_module(), path)


def exported_folder(path):
    save_networks(content_of_a_module(), path, optimizers=True)


def write_json(content):
    return lambda path: path.write_text(json.dumps(content))


def log_rows(path, steps=range(1, 9)):
    logger = CSVMetrics(str(path))
    for step in steps:
        logger.log_metrics({"loss/generator": step / 3, "loss/discriminator": 0.5}, step)


READERS = {
    "checkpoint": Reader(lambda path: save_file(3, path), read_checkpoint),
    "resumed": Reader(lambda path: save_file(3, path), CheckpointFiles().load_checkpoint),
    "module": Reader(module_file, load),
    "folder": Reader(lambda path: save_folder(3, path), read_checkpoint, "*.safetensors"),
    "rest of a folder": Reader(lambda path: save_folder(3, path), read_checkpoint, "rest.pt"),
    "commit of a folder": Reader(lambda path: save_folder(3, path), read_checkpoint, "commit.json"),
    "weights": Reader(
        lambda path: torch.save({"layer.weight": torch.ones(20, 20), "layer.bias": torch.zeros(20)}, path),
        lambda path: read_weights(path, None),
    ),
    "packed images": Reader(packed_folder, lambda path: open_packed(path).verify(), "images.npy"),
    "rows of packed images": Reader(packed_folder, lambda path: open_packed(path).verify(), "rows.jsonl"),
    "exported weights": Reader(exported_folder, load, "*.safetensors", 0.3),
    "exported configuration": Reader(exported_folder, load, "config.json", 0.3),
    "exported training": Reader(exported_folder, load, "training.pt"),
    "record of an evaluation": Reader(
        write_json({"protocol": {"num": 3}, "directions": {"fid": "min"}, "fid": 4.5}), _read, refused=0.3
    ),
}
RECORDS = {
    "statistics": Reader(
        lambda path: cache.write(path, {"fid/total": torch.ones(3), "kid/features": torch.zeros(4, 2)}), cache.read
    ),
    "rows": Reader(log_rows, lambda path: log_rows(path, [7]), "metrics.csv"),
}


class Payload:
    """Leaves a file behind if it is unpickled by a reader that runs code."""

    def __init__(self, trace):
        self.trace = str(trace)

    def __reduce__(self):
        return Path.touch, (Path(self.trace),)


def rewritten(path, edit):
    """Rewrites a file of torch.save with correct checksums, after `edit(name, content)` of each entry."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            archive.writestr(name, edit(name, content))


def packed_with(path, **claimed):
    """Packed images whose header claims something else."""
    content = (path / "images.npy").read_bytes()
    header = ast.literal_eval(content[10:128].decode()) | claimed
    (path / "images.npy").write_bytes(content[:10] + repr(header).encode().ljust(117) + b"\n" + content[128:])


def mutated(content, draw):
    """Damages bytes at random: flips, overwrites, removes, repeats or truncates."""
    content = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(max(len(content), 1))
        span = draw.choice([1, 1, 2, 8, 100])
        match draw.randrange(5):
            case 0 if content:
                content[at] ^= 1 << draw.randrange(8)
            case 1:
                content[at : at + span] = draw.randbytes(span)
            case 2:
                del content[at : at + span]
            case 3:
                content[at:at] = content[at : at + span]
            case _:
                del content[at + (len(content) - at) // 2 :]
    return bytes(content)


def mutate_file(path, content, draw):
    """Writes a mutation of a file; for half of those of torch.save, only inside the pickle, with right checksums."""
    path.write_bytes(content)
    if zipfile.is_zipfile(path) and draw.random() < 0.5:
        rewritten(path, lambda name, inside: mutated(inside, draw) if name.endswith("data.pkl") else inside)
    else:
        path.write_bytes(mutated(content, draw))
