"""Contexts that raise where the host waits for the device: torch's own on CUDA, an imitation on the CPU."""

from contextlib import ExitStack, contextmanager

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
READS = {  # operators whose result, or its shape, the host needs
    aten._local_scalar_dense,
    aten.is_nonzero,
    aten.equal,
    aten.nonzero,
    aten.masked_select,
    aten._unique2,
    aten.unique_dim,
    aten.unique_consecutive,
    aten.repeat_interleave,
}
METHODS = {
    getattr(torch.Tensor, name) for name in ("item", "tolist", "numpy", "cpu", "__bool__", "__float__", "__int__")
}
METHODS |= {torch.Tensor.__index__, torch.Tensor.__array__, torch.Tensor.__contains__, torch.allclose}
FACTORIES = {torch.tensor, torch.as_tensor, torch.from_numpy}  # copies of values of the host: CUDA waits for them


_allowed: list[object] = []


class HostWaits(RuntimeError):
    """The host reads a tensor, or copies a value into one, in a way that makes it wait for a GPU."""


class _Operators(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        masks = [index for index in args[1] if index is not None] if func.overloadpacket is aten.index else []
        if not _allowed and (
            func.overloadpacket in READS or any(mask.dtype in (torch.bool, torch.uint8) for mask in masks)
        ):
            raise HostWaits(f"{func} makes the host wait for the device.")
        return func(*args, **(kwargs or {}))


class _Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if not _allowed and (func in METHODS or (func in FACTORIES and not isinstance(args[0], torch.Tensor))):
            raise HostWaits(f"{func} makes the host wait for the device.")
        return func(*args, **(kwargs or {}))


@contextmanager
def reading_a_copy():
    """Allows reads on the CPU: those of a tensor that, on CUDA, is a copy on the host, made an iteration ago."""
    _allowed.append(None)
    try:
        yield
    finally:
        _allowed.pop()


@contextmanager
def without_waiting(device):
    """Raises where the host would wait for a GPU: `HostWaits` on the CPU, torch's RuntimeError on CUDA."""
    with ExitStack() as stack:
        if device.type == "cuda":
            before = torch.cuda.get_sync_debug_mode()
            stack.callback(torch.cuda.set_sync_debug_mode, before)
            torch.cuda.set_sync_debug_mode("error")
        else:
            stack.enter_context(_Operators())
            stack.enter_context(_Functions())
        yield


class Guarded:
    """Yields batches of another loader; in the iterations after the first, and not in those that log, no wait is
    allowed until the next batch is requested: in the step, the callbacks, the logging and the schedules.
    """

    def __init__(self, batches, device, num_iterations, log_every_n_steps):
        self.batches, self.device, self.num_iterations = batches, device, num_iterations
        self.log_every_n_steps, self.guarded = log_every_n_steps, []
        self._guard = ExitStack()

    def release(self, *_):
        """Ends the guard; also after an error, which suspends the iterator inside it."""
        self._guard.close()

    def __len__(self):
        return self.num_iterations

    def __iter__(self):
        for iteration in range(self.num_iterations):
            batch = self.batches[iteration % len(self.batches)]
            if iteration == 0 or (iteration + 1) % self.log_every_n_steps == 0:
                yield batch
            else:
                self._guard.enter_context(without_waiting(self.device))
                yield batch
                self.release()
                self.guarded.append(iteration)
