"""An iteration on a GPU that is not there: fake CUDA tensors have shapes, dtypes and devices, but no values."""

from contextlib import ExitStack, contextmanager

import torch
from lightning.pytorch import LightningModule
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from lit_gans.common.noise import Noise
from lit_gans.training.batch import prepare_batch, split_batch
from lit_gans.training.step import TrainingStep
from tests.cuda.host import HostWaits, without_waiting

CUDA = torch.device("cuda", 0)
aten = torch.ops.aten


class _Copies(TorchDispatchMode):
    """Raises where a tensor is copied between host and GPU in a way that makes the host wait."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in (aten._to_copy, aten.copy_):
            source = args[1] if func.overloadpacket is aten.copy_ else args[0]
            waits = not (kwargs or {}).get("non_blocking") and not (len(args) > 2 and args[2])
            if waits and source.device.type != result.device.type:
                raise HostWaits(f"{func} from {source.device} to {result.device} makes the host wait for the GPU.")
        return result


def move(module):
    """Replaces parameters and buffers of a module by fake tensors on the GPU."""
    moved = {}
    for layer in module.modules():
        for tensors in (layer._parameters, layer._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    fake = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=CUDA)
                    if isinstance(tensor, nn.Parameter):
                        fake = nn.Parameter(fake, requires_grad=tensor.requires_grad)
                    tensors[name] = moved.setdefault(id(tensor), fake)
    if isinstance(module, LightningModule):
        module._device = CUDA
    return module


class Event:
    """Stands for an event of CUDA, which needs a driver."""

    def record(self):
        pass


def _zero_gradients(outputs, inputs, *_, **__):
    """Stands for `torch.autograd.grad`, which needs a driver."""
    return tuple(torch.zeros_like(each) for each in ([inputs] if isinstance(inputs, torch.Tensor) else inputs))


@contextmanager
def fake_gpu(monkeypatch):
    """Context manager in which fake CUDA tensors compute, and in which waits of the host and mixed devices raise."""

    def draw(noise, function, purpose, num, shape):
        return function(num, *shape, device=CUDA)

    with monkeypatch.context() as patch, FakeTensorMode():
        patch.setattr(torch, "Generator", lambda device: torch.default_generator)
        patch.setattr(torch.autograd, "grad", _zero_gradients)
        patch.setattr(torch.cuda, "Event", Event)
        patch.setattr(Noise, "_draw", draw)
        yield


def run_iteration(module, num=2):
    """Runs all but the backward passes of an iteration, and returns the terms of all networks."""
    step = TrainingStep(move(module).train(), module.new_backend(10))
    shape = num * module.batches_per_step, *module.image_shape
    inputs = (num * module.batches_per_step, getattr(module, "input_channels", 1), *module.image_shape[1:])
    images, pictures = (torch.zeros(each, dtype=torch.uint8, device=CUDA) for each in (shape, inputs))
    labels = torch.zeros(shape[0], dtype=torch.long, device=CUDA)
    data = {"image": images, "input": pictures, "label": labels}
    terms = {}
    with ExitStack() as stack:
        stack.enter_context(without_waiting(torch.device("cpu")))
        stack.enter_context(_Copies())
        batch = split_batch(prepare_batch(data, module.channels_last), module.n_critic)[0]
        for key, terms_of, names in (
            (("discriminator", 0, 0), step.discriminator_terms, module.discriminator_names),
            (("generator", 0), step.generator_terms, ("generator",)),
        ):
            for microbatch in step._microbatches(batch, key):
                terms |= terms_of(microbatch)
            for name in names:
                for weight in step._trainable[name]:
                    weight.grad = torch.zeros_like(weight)
                step.backend.step(name)
        module.finite.end_iteration(1)
    return terms
