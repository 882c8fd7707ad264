"""Good files of every kind that is read from others, and what reads them."""

import json

import numpy as np
import torch
from PIL import Image

from lit_gans.checkpoints.format import CheckpointFiles, read_checkpoint, to_plain
from lit_gans.cli.compare import _read
from lit_gans.config.load import load
from lit_gans.config.registry import gans
from lit_gans.data.packed.format import open_packed
from lit_gans.data.sources.folder import Folder
from lit_gans.export.safetensors import load_generator, save_generator
from lit_gans.metrics.extractors.weights import read_weights
from lit_gans.strategies.deepspeed import settings

from .killed_saves import save_file as save_checkpoint_file
from .killed_saves import save_folder


def packed_folder(path):
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(path.parent / "one.png")
    data = Folder(str(path.parent), image_size=8, cache=str(path.parent / "cache"))
    data.packed.path.rename(path)


def open_and_verify(path):
    open_packed(path).verify()


def weights_file(path):
    torch.save({"layer.weight": torch.ones(20, 20), "layer.bias": torch.zeros(20)}, path)


def generator_folder(path):
    save_generator(gans()["dcgan"](image_size=16, channels=1, generator_width=2, discriminator_width=2), path)


def module_file(path):
    module = gans()["dcgan"](image_size=16, channels=1, generator_width=2, discriminator_width=2)
    content = {"global_step": 3, "state_dict": module.state_dict(), "hyper_parameters": to_plain(dict(module.hparams))}
    module.on_save_checkpoint(content)
    CheckpointFiles().save_checkpoint(content, path)


def record_file(path):
    path.write_text(json.dumps({"protocol": {"num": 3}, "directions": {"fid": "min"}, "fid": 4.5}))


def settings_file(path):
    path.write_text(json.dumps({"zero_optimization": {"reduce_bucket_size": 1000}, "steps_per_print": 10}))


READERS = {  # how a good file is made, which of its files is hostile, and what reads it
    "checkpoint": (lambda path: save_checkpoint_file(3, path), None, read_checkpoint),
    "resumed": (lambda path: save_checkpoint_file(3, path), None, CheckpointFiles().load_checkpoint),
    "module": (module_file, None, load),
    "folder": (lambda path: save_folder(3, path), "*.safetensors", read_checkpoint),
    "rest of a folder": (lambda path: save_folder(3, path), "rest.pt", read_checkpoint),
    "commit of a folder": (lambda path: save_folder(3, path), "commit.json", read_checkpoint),
    "weights": (weights_file, None, lambda path: read_weights(path, None)),
    "packed images": (packed_folder, "images.npy", open_and_verify),
    "rows of packed images": (packed_folder, "rows.jsonl", open_and_verify),
    "weights of a generator": (generator_folder, "*.safetensors", load_generator),
    "configuration of a generator": (generator_folder, "config.json", load_generator),
    "record of an evaluation": (record_file, None, _read),
    "settings of DeepSpeed": (settings_file, None, lambda path: settings.read(str(path))),
}


# of the mutations, how many are refused at least: the others are bytes between entries, of a comment or of a value
_LOADING = (
    "weights of a generator",
    "configuration of a generator",
    "record of an evaluation",
    "settings of DeepSpeed",
)
REFUSED = dict.fromkeys(_LOADING, 0.3)
