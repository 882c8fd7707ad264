"""One rank of two: `python -m tests.strategies.worker FUNCTION FILE`, started by `ranks.run`; runs a named function."""

import importlib
import sys
import warnings

import torch

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    place, _, name = sys.argv[1].rpartition(".")
    arguments = torch.load(sys.argv[2], weights_only=False)
    result = getattr(importlib.import_module(place), name)(**arguments)
    rank = __import__("os").environ["RANK"]
    torch.save(result, f"{sys.argv[2]}.{rank}")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
