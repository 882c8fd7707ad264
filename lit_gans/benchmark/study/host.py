"""The process on one host of `hosts`: `unshare --net python -m lit_gans.benchmark.study.host SETTINGS FILE SOCKET`.

It runs in a network namespace of its own, which ends with it, and makes the namespace's only interface: a TUN device,
whose file descriptor goes through the socket to the process that forwards its packets.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from typing import Any

from lit_gans.benchmark.study.contract import Unavailable
from lit_gans.benchmark.study.link import main
from lit_gans.common.errors import one_line
from lit_gans.strategies.process_lifetime import end_process

INTERFACE = "link0"
_MTU = 9000  # bytes of a packet, as in data centers; there are fewer to forward
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h


def address(rank: int) -> str:
    """Returns the IPv4 address of a host; `Switch` finds the host in its last byte."""
    return f"10.77.0.{rank + 1}"


def make_interface(rank: int, megabits: float) -> int:
    """Makes the interface of this namespace and returns the file descriptor of its packets.

    Args:
        rank: index of the host.
        megabits: megabits per second that the host may send.

    Raises:
        Unavailable: the machine has no TUN devices, no `ip` or `tc`, or permits neither.
    """
    try:
        device = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), _IFF_TUN | _IFF_NO_PI))
    except OSError as error:
        raise Unavailable(f"this machine refuses a TUN device (/dev/net/tun): {error.strerror}.") from error
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "addr", "add", f"{address(rank)}/24", "dev", INTERFACE)
    _run("ip", "link", "set", INTERFACE, "mtu", str(_MTU), "up")
    limit = ("tbf", "rate", f"{megabits}mbit", "burst", "128kb", "latency", "100ms")
    _run("tc", "qdisc", "add", "dev", INTERFACE, "root", *limit)
    return device


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"this machine refuses `{' '.join(command)}`: {one_line(done.stderr) or done.returncode}")


def _end_with(connection: socket.socket) -> None:
    connection.recv(1)  # nothing is sent: returns when the other end is closed
    end_process()


def _join(settings: dict[str, Any], connection: socket.socket) -> None:
    device = make_interface(int(os.environ["RANK"]), settings["megabits"])
    socket.send_fds(connection, [b"ready"], [device])
    os.close(device)
    threading.Thread(target=_end_with, args=(connection,), daemon=True, name="end-with-study").start()


if __name__ == "__main__":
    given, file = json.loads(sys.argv[1]), sys.argv[2]
    with socket.socket(fileno=int(sys.argv[3])) as connection:
        try:
            _join(given, connection)
        except Unavailable as reason:
            connection.send(one_line(reason).encode())
        else:
            main(given, file)
