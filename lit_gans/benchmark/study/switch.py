"""The network between the hosts of `hosts`: forwards IP packets from one interface to another, some time later.

The kernel's `tc netem` would delay packets too, but is missing from many kernels of virtual machines and containers. A
TUN device needs no more than the driver that every VPN uses: the hosts send at the rate that `tc` permits, and their
packets wait here.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

_PACKET = 2**16  # bytes, at most
_IDLE = 0.1  # seconds between two looks whether the switch has been closed
_URGENT = -20  # nice value: a network does not wait until a core of its hosts is free


class Switch(threading.Thread):
    """Forwards packets between TUN devices until it is closed.

    The last byte of a packet's IPv4 destination, minus 1, is the index of its device. Other packets (IPv6, broadcast)
    are dropped, as are those that a device does not take.

    Args:
        devices: file descriptors of the devices.
        delay: seconds from reading a packet to writing it.
    """

    def __init__(self, devices: Sequence[int], delay: float) -> None:
        super().__init__(daemon=True, name="switch")
        self._devices, self._delay = tuple(devices), delay
        self._closed = threading.Event()
        for device in devices:
            os.set_blocking(device, False)

    def run(self) -> None:
        with suppress(PermissionError):  # without root, the delay is longer while all cores compute
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _URGENT)
        under_way: deque[tuple[float, bytes]] = deque()
        while not self._closed.is_set():
            wait = under_way[0][0] - time.monotonic() if under_way else _IDLE
            ready, _, _ = select.select(self._devices, [], [], max(0.0, wait))
            due = time.monotonic() + self._delay
            for device in ready:
                with suppress(BlockingIOError):
                    under_way.append((due, os.read(device, _PACKET)))
            while under_way and under_way[0][0] <= time.monotonic():
                self._deliver(under_way.popleft()[1])

    def _deliver(self, packet: bytes) -> None:
        index = packet[19] - 1
        if packet[0] >> 4 == 4 and 0 <= index < len(self._devices):
            with suppress(OSError):  # the host has ended, or its queue is full
                os.write(self._devices[index], packet)

    def close(self) -> None:
        """Stops forwarding, and drops the packets under way."""
        self._closed.set()
        self.join()
