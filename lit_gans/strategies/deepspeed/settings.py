"""DeepSpeed's own settings: read, refused where they would have no effect, and the package itself."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lit_gans.common.errors import RefusedInput, install_command, nearest

_KEYS = (  # those that reach what the engines do here: DeepSpeed ignores others in silence
    "zero_optimization",
    "gradient_clipping",
    "communication_data_type",
    "prescale_gradients",
    "gradient_predivide_factor",
    "disable_allgather",
    "sparse_gradients",
    "data_types",
    "checkpoint",
    "aio",
    "comms_logger",
    "dump_state",
    "memory_breakdown",
    "steps_per_print",
    "wall_clock_breakdown",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
)
_INSTEAD = {
    "optimizer": "the module has its own",
    "scheduler": "the module has its own",
    "fp16": "use the Trainer's precision",
    "bf16": "use the Trainer's precision",
    "bfloat16": "use the Trainer's precision",
    "amp": "use the Trainer's precision",
    "torch_autocast": "use the Trainer's precision",
    "gradient_accumulation_steps": "use accumulate_gradients of the module",
    "train_batch_size": "use the batch size of the data",
    "train_micro_batch_size_per_gpu": "use the batch size of the data",
}


def read(config: dict[str, Any] | str | None) -> dict[str, Any]:
    """Returns DeepSpeed's settings from a JSON file, or as they are.

    Raises:
        RefusedInput: the file cannot be read.
    """
    if not isinstance(config, str):
        return dict(config or {})
    try:
        return json.loads(Path(config).read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise RefusedInput(f"config={config} cannot be read as JSON: {error}") from error


def refuse(config: Mapping[str, Any], stage: int, sharded_checkpoints: bool) -> None:
    """Raises `RefusedInput` for settings that cannot work, or would have no effect."""
    if stage not in (0, 1, 2, 3):
        raise RefusedInput(f"stage={stage}: ZeRO has the stages 0, 1, 2 and 3.")
    if "offload_optimizer" in config["zero_optimization"] and not stage:
        raise RefusedInput("offload_optimizer=true with stage=0: only stages 1, 2 and 3 keep optimizer states apart.")
    if sharded_checkpoints and not stage:
        raise RefusedInput("sharded_checkpoints=true with stage=0: every rank has everything: use stage=1, 2 or 3.")
    for key in config:
        if key in _INSTEAD:
            raise RefusedInput(f"{key} in the DeepSpeed config has no effect here: {_INSTEAD[key]}, and leave it out.")
        if key not in _KEYS:
            raise RefusedInput(f"{key} in the DeepSpeed config has no effect here; {nearest(key, _KEYS)}")


def load(device: str) -> Any:
    """Returns DeepSpeed, set to the device before it looks for one by itself."""
    if device == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    try:
        import deepspeed
        import deepspeed.ops
    except ImportError as error:
        raise RefusedInput(f"strategy=deepspeed needs DeepSpeed: {install_command('deepspeed')}") from error
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    if device == "cpu":  # else the ranks compile an operation, and wait for ever where a compilation was once killed
        deepspeed.ops.__compatible_ops__ = {}
    return deepspeed
