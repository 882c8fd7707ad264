"""Hosts made of network namespaces of one machine, joined by links of limited rate with a delay.

A host is a process in a network namespace of its own (`host`), whose packets a thread of the measuring process forwards
(`switch`). Namespaces, interfaces and packets under way end with the processes, also with those that are killed.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from shutil import which
from typing import Any

from lit_gans.benchmark.study.contract import Unavailable
from lit_gans.benchmark.study.host import INTERFACE, address
from lit_gans.benchmark.study.launch import rank_variables
from lit_gans.benchmark.study.switch import Switch

_PORT = 29500
_LIMIT = 600.0  # seconds for all processes
_PROGRAMS = ("unshare", "ip", "tc")


class Host:
    """One process in a network namespace.

    Args:
        rank: index of the host.
        settings: see `measure_hosts`.
        folder: where rank 0 writes its result, and each host its output.
    """

    def __init__(self, rank: int, settings: Mapping[str, Any], folder: Path) -> None:
        self._output = folder / f"{rank}.txt"
        self._connection, theirs = socket.socketpair()
        root = () if os.geteuid() == 0 else ("--map-root-user",)
        module = (sys.executable, "-m", "lit_gans.benchmark.study.host")
        arguments = (json.dumps(dict(settings)), str(folder / "result.json"), str(theirs.fileno()))
        common = {"MASTER_ADDR": address(0), "MASTER_PORT": str(_PORT), "GLOO_SOCKET_IFNAME": INTERFACE}
        common["OMP_NUM_THREADS"] = "1"
        environment = os.environ | common | rank_variables(rank, settings["hosts"], 1)
        with self._output.open("w") as output, theirs:
            self._process = subprocess.Popen(
                ("unshare", "--net", *root, *module, *arguments),
                env=environment,
                pass_fds=(theirs.fileno(),),
                stdout=output,
                stderr=output,
            )

    def device(self) -> int:
        """Waits until the host has its interface and returns the file descriptor of its packets.

        Raises:
            Unavailable: the machine refuses the namespace or the interface.
        """
        message, devices, _, _ = socket.recv_fds(self._connection, 4096, 1)
        if not devices:
            self._process.wait()
            refused = message.decode() or f"this machine refuses `unshare --net`: {self._output.read_text().strip()}"
            raise Unavailable(refused)
        return devices[0]

    def wait(self) -> None:
        """Waits for the end of the process.

        Raises:
            RuntimeError: it failed; the message is the end of its output.
        """
        if self._process.wait(_LIMIT):
            raise RuntimeError(self._output.read_text()[-2000:])

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        self._connection.close()


def measure_hosts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Runs `link.measure_link` with one process on each host and returns the result of rank 0.

    Args:
        settings: those of `link.measure_link`, with `hosts`, their number, `megabits`, what each may send in a second,
            and `delay`, milliseconds that a packet needs from one to another.

    Raises:
        Unavailable: the machine has no network namespaces, TUN devices or `tc`, or permits them only to root.
        RuntimeError: a process failed; the message is the end of its output.
    """
    missing = [program for program in _PROGRAMS if which(program) is None]
    if missing:
        raise Unavailable(f"hosts of network namespaces need {', '.join(_PROGRAMS)}: there is no {missing[0]}.")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hosts, devices = [], []
        for rank in range(settings["hosts"]):
            hosts.append(Host(rank, settings, folder))
            stack.callback(hosts[-1].close)
        for host in hosts:
            devices.append(host.device())
            stack.callback(os.close, devices[-1])
        switch = Switch(devices, settings["delay"] / 1e3)
        switch.start()
        stack.callback(switch.close)
        for host in hosts:
            host.wait()
        return dict(json.loads((folder / "result.json").read_text()))
