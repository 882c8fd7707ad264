"""Digests of classes and objects, which cover everything that affects their results: code, arguments and tensors."""

from __future__ import annotations

import functools
import hashlib
import inspect
import io
import json
import logging
import pickle
import pickletools
import re
import sys
import threading
import types
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

# packages whose code is not digested, because the protocol of a measurement records their version
_VERSIONED = {"torch", "torchvision", "torchmetrics", "lightning", "numpy", "lit_gans", *sys.stdlib_module_names}
# attributes of a module that do not affect its outputs: hooks, flags and its compiled form
_OF_COMPILED = {"_compiled_call_impl", "_is_torch_compile", "_compile_kwargs"}
_WITHOUT_CONTENT = (type(threading.Lock()), type(threading.RLock()), logging.Logger)
_OF_MODULES = {*vars(nn.Module()), *_OF_COMPILED} - {"_parameters", "_buffers", "_modules"}


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """Returns the SHA-256 digest of named tensors, in their order."""
    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def is_versioned(cls: type) -> bool:
    """Returns whether a class belongs to a package whose version is recorded, such as lit_gans or torch."""
    return cls.__module__.partition(".")[0] in _VERSIONED


def code_of(cls: type) -> list[list[str]]:
    """Returns the name and a digest of the code of a class and of each of its base classes, as plain values.

    The digest covers the whole file that defines a class, so that it includes functions and constants in that file. If
    there is no file, as in a notebook, the digest covers the source of the methods. The digest is empty for classes of
    packages whose version is recorded. Code that the file imports is not included.
    """
    return [[_name(base), "" if is_versioned(base) else _code(base)] for base in cls.__mro__[:-1]]


def digest_of_object(thing: Any) -> str:
    """Returns the SHA-256 digest of an object, which covers its class, code, attributes and tensors.

    The digest depends only on the values of tensors, and not on how they were initialized. For a module, the digest
    includes all parameters and buffers, even if they are not in the state dict. Hooks are not included.
    """
    return hashlib.sha256(json.dumps(_described(thing, {}), sort_keys=True).encode()).hexdigest()


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _code(cls: type) -> str:
    methods = (thing for thing in vars(cls).values() if inspect.isfunction(thing))
    try:
        text = Path(inspect.getfile(cls)).read_text(encoding="utf-8")
    except (OSError, TypeError, UnicodeDecodeError):  # for classes in a notebook, or created by a library function
        text = "\n".join(map(_source, methods))
    return hashlib.sha256(text.encode()).hexdigest()


def _source(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return _bytecode(getattr(function, "__code__", None))


def _bytecode(code: Any) -> str:
    if not isinstance(code, types.CodeType):
        return ""
    inner = [
        _bytecode(constant) if isinstance(constant, types.CodeType) else repr(constant) for constant in code.co_consts
    ]
    return repr((code.co_code, inner, code.co_names))


def _described(thing: Any, seen: dict[int, tuple[int, Any]]) -> Any:
    """Returns plain values that describe an object.

    An object that has been described before, for example because it contains itself, is replaced by its number.
    """
    if thing is None or isinstance(thing, bool | int | float | complex | str | bytes | torch.dtype | torch.device):
        return [type(thing).__name__, repr(thing)]
    if isinstance(thing, PurePath):
        return ["path", *_file(thing)]
    if isinstance(thing, Tensor):
        return ["tensor", digest_of({"": thing.as_subclass(Tensor)})]
    if isinstance(thing, np.ndarray | np.generic):
        return ["array", str(thing.dtype), list(thing.shape), hashlib.sha256(thing.tobytes()).hexdigest()]
    if isinstance(thing, type):
        return ["class", code_of(thing)]
    if isinstance(thing, types.ModuleType):
        return ["module", thing.__name__]
    if isinstance(thing, _WITHOUT_CONTENT):
        return [_name(type(thing))]
    if type(thing).__name__ == "OptimizedModule":  # returned by torch.compile
        return _described(dict(thing.named_children())["_orig_mod"], seen)
    if id(thing) in seen:
        return ["again", seen[id(thing)][0]]
    seen[id(thing)] = len(seen), thing  # keeps a reference, so that no new object gets the same id

    def describe_all(things: Iterable[Any]) -> list[Any]:
        return [_described(item, seen) for item in things]

    if isinstance(thing, Mapping):
        return [_name(type(thing)), [describe_all(pair) for pair in thing.items()]]
    if isinstance(thing, list | tuple):
        return [_name(type(thing)), describe_all(thing)]
    if isinstance(thing, set | frozenset):
        return [_name(type(thing)), sorted(map(repr, thing))]
    if isinstance(thing, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        return ["compiled", _archive(thing.save_to_buffer(_extra_files={}))]
    if isinstance(thing, functools.partial):
        return ["partial", describe_all((thing.func, thing.args, thing.keywords))]
    if isinstance(thing, types.MethodType):
        return ["method", thing.__name__, _described(thing.__self__, seen)]
    if isinstance(thing, types.FunctionType):
        cells = [cell.cell_contents for cell in thing.__closure__ or () if cell != types.CellType()]
        values = thing.__defaults__, thing.__kwdefaults__, vars(thing), *cells
        return ["function", thing.__module__, thing.__qualname__, _source(thing), describe_all(values)]
    if isinstance(thing, types.BuiltinFunctionType):
        return ["function", thing.__module__, thing.__qualname__, _described(thing.__self__, seen)]
    return [code_of(type(thing)), [[name, _described(value, seen)] for name, value in _attributes(thing)]]


def _file(path: PurePath) -> list[str]:
    """Returns the name and the digest of a file, regardless of its folder. Returns any other path as text."""
    try:
        with open(path, "rb") as file:
            return [path.name, hashlib.file_digest(file, "sha256").hexdigest()]
    except OSError:
        return [str(path)]


def _archive(content: bytes) -> list[list[str]]:
    """Returns the names and digests of the entries in a TorchScript archive: code, attributes and tensors.

    Numbers that distinguish classes of the same name, positions in the source code, and the device are ignored.
    """

    def plain(text: Any) -> str:
        return re.sub(r"___torch_mangle_\d+\.?|^(cpu|cuda:\d+)$", "", str(text))

    parts = []
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            part, short = archive.read(name), name.partition("/")[2]
            if short.endswith(".debug_pkl") or short.startswith(".data/"):
                continue
            if short.endswith(".pkl"):
                part = repr([(code.name, plain(value)) for code, value, _ in pickletools.genops(part)]).encode()
            elif short.endswith(".py"):
                part = plain(part.decode()).encode()
            parts.append([re.sub(r"___torch_mangle_\d+/?", "", short), hashlib.sha256(part).hexdigest()])
    return sorted(parts)


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yields the attributes of an object, by name.

    For a `GraphModule`, which torch.fx has traced, yields the code, and the functions and modules that the code calls.
    """
    if isinstance(thing, torch.fx.GraphModule):
        yield "code", thing.code
        yield "functions", [node.target for node in thing.graph.nodes if callable(node.target)]
        yield "modules", dict(thing.named_children())
        yield "tensors", {name: value for name, value in vars(thing).items() if isinstance(value, Tensor)}
        yield "state", [dict(thing.named_parameters(recurse=False)), dict(thing.named_buffers(recurse=False))]
        return
    slots = {}
    for cls in type(thing).__mro__:
        for name, value in vars(cls).items():
            if isinstance(value, types.MemberDescriptorType) and "__slots__" in vars(cls):
                with suppress(AttributeError):  # the slot is not set
                    slots[name] = value.__get__(thing)
            elif not is_versioned(cls) and not name.startswith("__") and name != "_abc_impl":
                # includes values that are not in the source of the class, such as the constants of a class that was
                # created by `type`, and the closures of its methods
                function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                if isinstance(function, types.FunctionType) or not hasattr(function, "__get__"):
                    yield f"{cls.__qualname__}.{name}", function
    left_out = _OF_MODULES if isinstance(thing, nn.Module) else set()
    attributes = {name: value for name, value in getattr(thing, "__dict__", {}).items() if name not in left_out}
    yield from (slots | attributes).items()
    if not (slots or attributes or isinstance(thing, nn.Module)):
        yield from _without_attributes(thing)


def _without_attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yields the `repr` of an object without attributes. If the `repr` has a memory address, yields the pickled object.

    Yields a unique value for objects that cannot be pickled, so that they never count as equal.
    """
    if " at 0x" not in repr(thing):
        yield "repr", repr(thing)
    elif not hasattr(thing, "__dict__"):
        try:
            yield "pickle", pickle.dumps(thing, 4)
        except Exception:
            yield "nothing else", uuid.uuid4().hex
