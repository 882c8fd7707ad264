"""A process that has imported everything and forks ranks: `python -m tests.strategies.fork_server`, see `ranks.run`.

It reads requests from standard input, one line of JSON each: the function, the file of its arguments, and the
environment and output file of each rank. It answers with the ranks' process ids, and once all have ended with their
exit codes. It computes nothing itself: threads and process groups do not survive a fork.
"""

import gc
import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
import warnings
from functools import cache
from pathlib import Path

PRELOADED = (
    "pytest",
    "torch._inductor.compile_fx",  # DeepSpeed imports it with its first engine
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "lightning.pytorch",
    "deepspeed",
    "deepspeed.module_inject",
    "deepspeed.utils.zero_to_fp32",
    "lit_gans",
    "lit_gans.callbacks",
    "lit_gans.cli.fit",
    "lit_gans.cli.train",
    "lit_gans.config.hydra_app",
    "lit_gans.strategies.ddp",
    "lit_gans.strategies.deepspeed.strategy",
    "lit_gans.strategies.fsdp",
    "tests.strategies.cells",
)


def preload():
    warnings.simplefilter("ignore")
    for name in PRELOADED:
        importlib.import_module(name)
    from lightning.fabric.utilities import registry

    from tests.strategies.cells import many_images

    many_images()
    registry.entry_points = cache(registry.entry_points)  # else each Trainer reads the metadata of all packages
    num_threads = len(os.listdir("/proc/self/task")) if Path("/proc/self/task").is_dir() else 1
    assert num_threads == 1, f"{num_threads} threads: forked ranks would lack all but one"
    gc.collect()
    gc.freeze()  # so that ranks share the memory of what is imported


def fork(function, arguments, environment, output):
    """Starts a rank and returns its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.clear()
        os.environ.update(environment)
        execute(function, arguments)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def execute(function, arguments):
    import torch

    torch.use_deterministic_algorithms(True)  # fills memory that nobody has initialized with NaN
    place, _, name = function.rpartition(".")
    run, kwargs = getattr(importlib.import_module(place), name), torch.load(arguments, weights_only=False)
    gc.freeze()  # DeepSpeed collects garbage whenever it makes an engine
    result = run(**kwargs)
    torch.save(result, f"{arguments}.{os.environ.get('RANK', 0)}")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def ended(running, grace):
    """Waits until all processes have ended, and returns their exit codes; kills them where nobody asks any more, and
    the others `grace` seconds after one has failed.
    """
    codes, failed_at = {}, None
    while running - codes.keys():
        if failed_at is None and any(codes.values()):
            failed_at = time.monotonic()
        if failed_at is not None and grace is not None and time.monotonic() - failed_at > grace:
            for pid in running - codes.keys():
                os.kill(pid, signal.SIGKILL)
        for pid in running - codes.keys():
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                codes[pid] = os.waitstatus_to_exitcode(status)
        if select.select([0], [], [], 0.02)[0]:  # the next request comes after the answer: this is the end
            for pid in running - codes.keys():
                os.kill(pid, signal.SIGKILL)
            os._exit(1)
    return codes


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print while they are imported
    preload()
    while line := _line():
        request = json.loads(line)
        given = zip(request["environments"], request["outputs"], strict=True)
        pids = [fork(request["function"], request["arguments"], *rank) for rank in given]
        print(json.dumps(pids), file=answers, flush=True)
        codes = ended(set(pids), request["grace"])
        print(json.dumps([codes[pid] for pid in pids]), file=answers, flush=True)


def _line():
    """Reads a line without a buffer, which `select` would not see."""
    line = b""
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            return b""
        line += byte
    return line


if __name__ == "__main__":
    main()
    os._exit(0)  # libraries print at an orderly end
