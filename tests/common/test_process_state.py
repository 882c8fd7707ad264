"""What a training leaves in its process: nothing that the next one would find."""

import decimal
import gc
import logging
import os
import random
import signal
import sys
import threading
import warnings

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torch.nn.modules import module

from lit_gans.common.process_state import process_state_restored

LOGGER = logging.getLogger("lit_gans")


def umask():
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def read_state():
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "handler": signal.getsignal(signal.SIGTERM),
        "dtype": torch.get_default_dtype(),
        "device": torch.empty(0).device,
        "deterministic": (torch.are_deterministic_algorithms_enabled(), torch.get_deterministic_debug_mode()),
        "anomaly": torch.is_anomaly_enabled(),
        "threads": torch.get_num_threads(),
        "matmul": torch.get_float32_matmul_precision(),
        "cudnn": (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, torch.backends.cudnn.enabled),
        "filters": [*warnings.filters],
        "rc": dict(matplotlib.rcParams),
        "cudnn numbers": torch.backends.cudnn.allow_tf32,
        "mkldnn": (torch.backends.mkldnn.enabled, torch.backends.mkldnn.deterministic),
        "module hooks": (len(module._global_forward_hooks), len(module._global_backward_hooks)),
        "kind of backward hooks": module._global_is_full_backward_hook,
        "prints": repr(torch.tensor([1 / 3, 1e9])),
        "attention": (torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()),
        "attention on CUDA": (
            torch.backends.cuda.mem_efficient_sdp_enabled(),
            torch.backends.cuda.cudnn_sdp_enabled(),
        ),
        "autocast": [torch.get_autocast_dtype(each) for each in ("cpu", "cuda")],
        "autocast cache": torch.is_autocast_cache_enabled(),
        "uninitialized memory": torch.utils.deterministic.fill_uninitialized_memory,
        "tiny numbers": (torch.full((), 1e-20, dtype=torch.float32, device="cpu") * 1e-20 * 1e20).item(),
        "logger": [getattr(logger, name) for logger in (logging.root, LOGGER) for name in ("level", "propagate")],
        "handlers": [[*logger.handlers, *logger.filters] for logger in (logging.root, LOGGER)],
        "levels that are off": logging.root.manager.disable,
        "NumPy": (np.geterr(), np.get_printoptions()["precision"]),
        "decimal": decimal.getcontext().prec,
        "path": [*sys.path],
        "hook": sys.excepthook,
        "recursion": sys.getrecursionlimit(),
        "mask": umask(),
        "collector": (gc.isenabled(), gc.get_threshold()),
        "figures": plt.get_fignums(),
        "numbers": random.getstate(),
        "numbers of torch": torch.get_rng_state().tolist(),
        "numbers of NumPy": np.random.get_state()[1].tolist(),
    }


def change_state(folder):
    os.environ.update(LIT_GANS_TEST="new", HOME="elsewhere")
    del os.environ["PATH"]
    os.chdir(folder)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.autograd.set_detect_anomaly(True)
    torch.set_num_threads(torch.get_num_threads() + 1)
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.enabled = False
    torch.backends.cudnn.allow_tf32 = not torch.backends.cudnn.allow_tf32
    torch.backends.mkldnn.enabled = False
    torch.backends.mkldnn.deterministic = True
    module.register_module_forward_hook(lambda *_: None)
    module.register_module_full_backward_hook(lambda *_: None)
    torch.set_printoptions(precision=2, sci_mode=False)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.set_autocast_dtype("cpu", torch.float16)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    torch.set_autocast_cache_enabled(False)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.set_flush_denormal(True)
    for logger in (logging.root, LOGGER):
        logger.setLevel(logging.CRITICAL)
        logger.addHandler(logging.NullHandler())
        logger.addFilter(lambda record: False)
        logger.propagate = False
    logging.disable(logging.CRITICAL)
    np.seterr(all="raise")
    np.set_printoptions(precision=2)
    decimal.getcontext().prec = 5
    sys.path.append(str(folder))
    sys.excepthook = print
    sys.setrecursionlimit(sys.getrecursionlimit() + 1)
    os.umask(0o027)
    gc.set_threshold(7)
    plt.figure()
    warnings.simplefilter("always")
    matplotlib.rcParams["figure.dpi"] = 7
    random.random(), torch.rand(1, device="cpu"), np.random.rand()


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt, SystemExit])
def test_the_state_of_the_process_is_restored(tmp_path, error):
    before = read_state()
    try:
        with process_state_restored():
            change_state(tmp_path)
            changed = read_state()
            if error is not None:
                raise error
    except (ValueError, KeyboardInterrupt, SystemExit) as raised:
        assert type(raised) is error  # noqa: PT017
    assert read_state() == before
    assert not {name for name in before if changed[name] == before[name]}, "each of them was changed"


def test_a_precision_that_was_set_for_one_backend_is_restored():
    """torch raises for `get_float32_matmul_precision` then."""
    with process_state_restored():
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert torch.get_float32_matmul_precision() == "highest"


def test_threads_never_find_the_environment_empty():
    missing, ends = [], threading.Event()

    def watch():
        while not ends.is_set():
            if "PATH" not in os.environ:
                missing.append("PATH")

    thread = threading.Thread(target=watch)
    thread.start()
    for number in range(40):
        with process_state_restored():
            os.environ["LIT_GANS_TEST"] = str(number)
    ends.set()
    thread.join()
    assert not missing
    assert "LIT_GANS_TEST" not in os.environ
