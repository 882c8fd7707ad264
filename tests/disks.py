"""Disks that are full or read-only: a small tmpfs where root may mount one, and limits of the size of files."""

import resource
import shutil
import subprocess
from contextlib import contextmanager, suppress

import pytest


def mounted(folder, kilobytes):
    """Mounts a small file system on a folder; skips the test where that is not permitted."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a file system can only be mounted by root")


def remount(folder, option):
    """Changes a mounted file system, for example `ro` or `size=900k`."""
    subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=True)


def unmount(folder):
    subprocess.run(["umount", "--lazy", str(folder)], capture_output=True)


@contextmanager
def filled(folder):
    """Fills the disk of a folder, and makes room at the end."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1024)):
            pass
    try:
        yield
    finally:
        ballast.unlink(missing_ok=True)


@contextmanager
def limited(num_bytes):
    """Lets this process write no larger files: what a full disk is without being root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
