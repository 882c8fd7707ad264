"""Hosts made of network namespaces of one machine, joined by a switch, each with a link of limited rate.

A host is a namespace with one virtual Ethernet interface, whose other end is in a bridge in a namespace of its own, so
that the machine's own network stays as it is. The token bucket filter of `tc` limits what each host sends. Delay would
need `tc netem`, which not every kernel has; the latency is that of the virtual interfaces, and is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any

from lit_gans.benchmark.study.contract import Unavailable
from lit_gans.benchmark.study.launch import rank_variables

_PORT = 29500
_LIMIT = 600.0  # seconds for all processes


@contextmanager
def namespaces(num: int, megabits: float) -> Iterator[list[str]]:
    """Yields the names of the hosts' namespaces, and removes them afterwards.

    Args:
        num: number of hosts.
        megabits: megabits per second that each host may send.

    Raises:
        Unavailable: the machine has no `ip` or `tc`, or permits no namespaces.
    """
    missing = [program for program in ("ip", "tc") if which(program) is None]
    if missing:
        raise Unavailable(f"hosts of network namespaces need the programs ip and tc: there is no {missing[0]}.")
    prefix = f"lg{os.getpid()}"
    switch, hosts = f"{prefix}s", [f"{prefix}h{index}" for index in range(num)]
    made: list[str] = []
    try:
        for name in (switch, *hosts):
            _run("ip", "netns", "add", name)
            made.append(name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
        _run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "br0", "up")
        for index, host in enumerate(hosts):
            _plug(switch, host, index, megabits)
        yield hosts
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def _plug(switch: str, host: str, index: int, megabits: float) -> None:
    port = f"port{index}"
    peer = ("peer", "name", port, "netns", switch)
    _run("ip", "link", "add", "eth0", "netns", host, "type", "veth", *peer)
    _run("ip", "-n", switch, "link", "set", port, "master", "br0", "up")
    _run("ip", "-n", host, "addr", "add", f"{_address(index)}/24", "dev", "eth0")
    _run("ip", "-n", host, "link", "set", "eth0", "up")
    limit = ("tbf", "rate", f"{megabits}mbit", "burst", "128kb", "latency", "100ms")
    _run("tc", "-n", host, "qdisc", "add", "dev", "eth0", "root", *limit)


def _address(index: int) -> str:
    return f"10.77.0.{index + 1}"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"this machine refuses `{' '.join(command)}`: {done.stderr.strip() or done.returncode}")


def measure_hosts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Runs `link.measure_link` with one process on each host and returns the result of rank 0.

    Args:
        settings: those of `link.measure_link`, with `hosts`, their number, and `megabits`, the rate of each.

    Raises:
        Unavailable: see `namespaces`.
        RuntimeError: a process failed; the message is the end of its output.
    """
    num = settings["hosts"]
    with namespaces(num, settings["megabits"]) as hosts, tempfile.TemporaryDirectory() as folder:
        file, processes = Path(folder) / "result.json", []
        common = {"MASTER_ADDR": _address(0), "MASTER_PORT": str(_PORT), "GLOO_SOCKET_IFNAME": "eth0"}
        common["OMP_NUM_THREADS"] = "1"
        for rank, host in enumerate(hosts):
            command = ["ip", "netns", "exec", host, sys.executable, "-m", "lit_gans.benchmark.study.link"]
            environment = os.environ | common | rank_variables(rank, num, 1)
            with (Path(folder) / f"{rank}.txt").open("w") as output:
                arguments = [*command, json.dumps(dict(settings)), str(file)]
                processes.append(subprocess.Popen(arguments, env=environment, stdout=output, stderr=output))
        try:
            codes = [process.wait(_LIMIT) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        for rank, code in enumerate(codes):
            if code:
                raise RuntimeError((Path(folder) / f"{rank}.txt").read_text()[-2000:])
        return dict(json.loads(file.read_text()))
