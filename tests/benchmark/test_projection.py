"""The parts `projection` and `lightweight`: predictions in closed form, tables without a number typed by hand."""

import socket
import time

import pytest
from torch import nn

from lit_gans.benchmark.cost_model import Cluster, Link, step_seconds, traffic
from lit_gans.benchmark.study.contract import Result, Unavailable
from lit_gans.benchmark.study.hosts import measure_hosts
from lit_gans.benchmark.study.link import gradient_bytes
from lit_gans.benchmark.study.parts.lightweight import Lightweight, multiply_adds
from lit_gans.benchmark.study.parts.projection import Projection, prediction
from lit_gans.benchmark.study.settings import Settings, preset
from lit_gans.benchmark.study.switch import Switch
from lit_gans.benchmark.study.training import model_node
from tests.benchmark.study.namespaces import NEEDS_NAMESPACES

SMOKE = preset("smoke", Settings(device="cpu", devices=("cpu",), ranks=(1, 2), cores=2, gans=("dcgan",)), {})
TRUTH = Link(2e-3, 4e7)
OPS = traffic("ddp", 4e6, 2e6)
STEP = {"gradients": [4e6, 2e6], "n_critic": 1, "reuses_fake": True, "computation": 0.1}


def repeat(devices):
    """What a link of known latency and bandwidth would have been measured as."""
    all_reduces = {
        str(size): 2 * (devices - 1) * (TRUTH.latency + size / devices / TRUTH.bandwidth) for size in (4096, 2**22)
    }
    seconds = step_seconds(0.1, OPS, Cluster(TRUTH), devices)
    return {**STEP, "all_reduces": all_reduces, "seconds": seconds, "images_per_second": 4 * devices / seconds}


@pytest.mark.parametrize("devices", [2, 3, 4])
def test_a_step_is_predicted_from_all_reduces_and_computation(devices):
    assert prediction(repeat(devices), devices) == pytest.approx(repeat(devices)["seconds"], rel=1e-3)


def test_the_projection_compares_predictions_and_goes_to_1024_devices():
    part = Projection()
    cells = part.cells(SMOKE)
    assert [cell.ranks for cell in cells] == [2, 1, 1, 1]
    assert all(cell.reason for cell in cells if "hosts" in cell.settings), "too short for hosts"
    results = {"projection": [Result(cells[0], (repeat(2), repeat(2))), *map(Result, cells[1:])]}
    measured, study, far, machine = part.tables(results)
    assert [row[-2] for row in measured.rows] in (["+0 %"], ["-0 %"])
    assert [row[:4] for row in study.rows] == [
        ["dcgan", "weak", "8", "5081"],
        ["dcgan", "strong", "4", "2224"],
        ["dcgan", "strong", "8", "2111"],
        ["sngan", "weak", "8", "5440"],
    ]
    assert [table.rows[-1][0] for table in (far, machine)] == ["1,024", "1,024"]
    assert far.rows[0][1].startswith("1,378 (100 %)")
    assert machine.rows[1][1].startswith(f"{repeat(2)['images_per_second']:,.0f} ")
    assert all(picture.data.startswith(b"<?xml") for picture in part.plots(results))
    assert len(part.tables({"projection": []})) == 2, "the study's tables need no measurement"


def test_a_machine_without_ip_has_no_hosts(monkeypatch):
    monkeypatch.setattr("lit_gans.benchmark.study.hosts.which", lambda program: program if program != "ip" else None)
    with pytest.raises(Unavailable, match="there is no ip"):
        measure_hosts({"hosts": 2, "megabits": 10.0, "delay": 0.0})


def packet(destination, text, version=4):
    return bytes([version << 4, *15 * [0], 10, 77, 0, destination]) + text


def test_the_switch_delivers_packets_to_their_host_after_the_delay():
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(3)]
    hosts = [host for host, _ in pairs]
    switch = Switch([device.fileno() for _, device in pairs], delay=0.2)
    switch.start()
    start = time.monotonic()
    hosts[0].send(packet(3, b"to nobody", version=6))
    hosts[0].send(packet(9, b"to no host"))
    hosts[0].send(packet(3, b"first"))
    hosts[1].send(packet(3, b"second"))
    assert {hosts[2].recv(100)[20:] for _ in range(2)} == {b"first", b"second"}
    assert time.monotonic() - start >= 0.2
    hosts[2].send(packet(1, b"back"))
    assert hosts[0].recv(100)[20:] == b"back"
    switch.close()
    for end in (end for pair in pairs for end in pair):
        end.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
@NEEDS_NAMESPACES
def test_two_hosts_on_a_limited_link():
    """What an all-reduce takes at least: a ring of two sends each byte once, in two messages."""
    model = model_node("dcgan", image_size=16, width=8)
    common = {"model": model, "batch_size": 2, "device": "cpu", "steps": 2, "warmup": 1, "hosts": 2}
    slow = measure_hosts({**common, "megabits": 16.0, "delay": 0.0})
    far = measure_hosts({**common, "megabits": 400.0, "delay": 50.0})
    assert slow["all_reduces"][str(2**22)] > 0.8 * 2**22 * 8 / 16e6
    assert far["all_reduces"]["4096"] > 2 * 0.050 > slow["all_reduces"]["4096"]
    assert far["all_reduces"][str(2**22)] < slow["all_reduces"][str(2**22)]
    assert min(slow["seconds"], far["seconds"]) > 0


def test_lightweight_counts_what_the_networks_cost(tiny_gan):
    module = tiny_gan(image_size=16, latent_dim=6)
    (linear,) = (layer for layer in module.discriminator.modules() if isinstance(layer, nn.Linear))
    first, second = (layer for layer in module.discriminator.modules() if isinstance(layer, nn.Conv2d))
    expected = 8 * 8 * first.weight.numel() + 4 * 4 * second.weight.numel() + linear.weight.numel()
    assert multiply_adds(module, "discriminator") == expected
    generator, discriminator = gradient_bytes(module)
    assert (generator, discriminator) == tuple(
        4 * sum(p.numel() for p in network.parameters()) for network in (module.generator, module.discriminator)
    )


def test_lightweight_compares_with_plain_convolutions_of_full_width():
    part = Lightweight()
    cells = part.cells(SMOKE)
    assert len({cell.name for cell in cells}) == len(cells) == 8
    assert {cell.settings["model"]["block"] for cell in cells} == {"plain", "grouped", "separable", "inverted_residual"}
    assert {cell.settings["model"]["generator_width"] for cell in cells} == {4, 2}
    numbers = {"parameters": 1000, "generator_multiply_adds": 2e6, "discriminator_multiply_adds": 1e6, "fid": 99.0}
    results = [
        Result(cell, ({**numbers, "images_per_second": 10.0 * (1 + index)},)) for index, cell in enumerate(cells)
    ]
    (table,) = part.tables({"lightweight": results})
    assert [row[6] for row in table.rows] == [f"{1 + index:.2f}" for index in range(8)]
    assert part.plots({"lightweight": results})
    assert part.tables({"lightweight": []})[0].rows == []
