"""Hostile and mutated files: what runs code if it is believed, and random damage, from a seed."""

import ast
import zipfile
from pathlib import Path


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
