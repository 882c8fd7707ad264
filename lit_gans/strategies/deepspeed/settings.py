"""DeepSpeed's settings: they are read, validated and completed; and the import of DeepSpeed."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lit_gans.common._compat.deepspeed import forbid_compiled_operations
from lit_gans.common.errors import RefusedInput, install_command, nearest

_LARGEST_BUCKET = 50_000_000  # elements; DeepSpeed's own default is ten times that, for each engine
_KEYS = (  # settings that affect the engines; DeepSpeed silently ignores others
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


def read(config: dict[str, Any] | str | None) -> dict[str, Any]:
    """Reads DeepSpeed's settings from a JSON file, or returns a copy of a dictionary of them."""
    settings = json.loads(Path(config).read_text()) if isinstance(config, str) else config or {}
    return {"zero_optimization": {}} | settings


def refuse(config: Mapping[str, Any], stage: int) -> None:
    """Raises `RefusedInput` for settings that are invalid or would have no effect."""
    if stage not in (0, 1, 2, 3):
        raise RefusedInput(f"stage={stage} is not a stage of ZeRO: use one of the stages 0, 1, 2 and 3.")
    if "offload_optimizer" in config["zero_optimization"] and not stage:
        raise RefusedInput(
            "offload_optimizer=True has no effect with stage=0, which does not shard optimizer states: use stage=1, 2"
            " or 3."
        )
    for key in config:
        if key not in _KEYS:
            raise RefusedInput(
                f"{key} in the DeepSpeed config has no effect here; {nearest(key, _KEYS)} Optimizers and accumulation"
                " are those of the module, the precision is that of the Trainer, and the batch size that of the data."
            )


def engine_config(config: Mapping[str, Any], stage: int, num_parameters: int, clip: float | None) -> dict[str, Any]:
    """Returns the settings of one network's engine.

    Args:
        config: settings of the user.
        stage: stage of ZeRO.
        num_parameters: number of parameters of the network, which limits the size of buckets.
        clip: maximum gradient norm of the module. It is always set, since DeepSpeed's default is 1.

    Raises:
        RefusedInput: the settings and the module clip to different norms.
    """
    bucket = min(num_parameters, _LARGEST_BUCKET)
    bucket += bucket % 2  # DeepSpeed requires an even number
    zero = {"reduce_bucket_size": bucket, "allgather_bucket_size": bucket}
    if stage == 3:
        zero["stage3_prefetch_bucket_size"] = bucket
    given = config.get("gradient_clipping", clip or 0.0)
    if clip is not None and given != clip:
        raise RefusedInput(
            f"gradient_clipping={given} in the DeepSpeed config differs from clip_gradients_to={clip} of the module:"
            " leave one of them out."
        )
    fixed = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "gradient_clipping": given}
    free = {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    return {**free, **config, **fixed, "zero_optimization": zero | config["zero_optimization"]}


def load(device: str) -> Any:
    """Imports DeepSpeed and sets its device before its automatic detection."""
    if device == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    try:
        import deepspeed
        import deepspeed.ops
    except ImportError as error:
        raise RefusedInput(f"NetworkDeepSpeed needs DeepSpeed: {install_command('deepspeed')}") from error
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    if device == "cpu":
        forbid_compiled_operations(deepspeed)
    return deepspeed
