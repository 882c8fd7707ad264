"""The step benchmark: what it reports, and that its loops do the same work. No timing is asserted."""

import json
import os
import signal
import sys

import pytest
import torch

from benchmarks.loops import BareLoop, TutorialLoop
from benchmarks.step import step
from lit_gans.models.dcgan import DCGAN

LOOPS = {"tutorial", "bare", "lit_gans"}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a busy machine, threads wait for each other longer than these small steps take
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    path = tmp_path_factory.mktemp("benchmark") / "step.json"
    return step(["dcgan", "wgan_gp"], "smoke", str(path), steps=3, log_every_n_steps=2, device="cpu"), path


def test_result_is_written_and_complete(smoke):
    result, path = smoke
    assert json.loads(path.read_text()) == result
    for found in result["gans"].values():
        assert set(found["loops"]) == LOOPS
        for loop in found["loops"].values():
            assert loop["seconds"]["lower_quartile"] <= loop["seconds"]["median"] <= loop["seconds"]["upper_quartile"]
            assert min(loop["images_per_second"], loop["flops_per_step"], loop["operations_per_step"]) > 0
        assert found["loops"]["tutorial"]["speedup_over_tutorial"]["median"] == 1
        assert found["loops"]["bare"]["time_over_bare"]["median"] == 1
        assert found["loops"]["bare"]["seconds_over_bare"]["median"] == 0


def test_first_losses_are_equal(smoke):
    first = smoke[0]["gans"]["dcgan"]["first_step"]
    assert set(first["losses"]) == LOOPS
    assert first["losses"]["bare"] == first["losses"]["lit_gans"]
    assert first["losses"]["tutorial"] == pytest.approx(first["losses"]["lit_gans"], rel=1e-4)
    assert all(found["first_step"]["equal"] for found in smoke[0]["gans"].values())


def test_bare_and_lit_gans_do_the_same_work(smoke):
    """After all steps: networks, average, and the penalty of WGAN-GP."""
    assert [found["largest_weight_difference"] for found in smoke[0]["gans"].values()] == [0, 0]


def test_bf16_of_tiny_networks():
    result = step(["sngan"], "smoke", steps=1, warmup=1, precision="bf16", tiny=True, loops=["bare"], device="cpu")
    found = result["gans"]["sngan"]
    assert set(found["loops"]) == {"bare", "lit_gans"}
    assert found["largest_weight_difference"] == 0
    assert found["first_step"]["equal"]
    assert (result["threads"], result["width"]) == (1, 2)


def test_a_signal_ends_with_what_was_measured(monkeypatch, capsys):
    steps, by_hand = [], BareLoop.step

    def stopped(loop, real):
        steps.append(len(real))
        if len(steps) == 8:
            os.kill(os.getpid(), signal.SIGTERM)
        return by_hand(loop, real)

    monkeypatch.setattr(BareLoop, "step", stopped)
    result = step(["dcgan", "sngan"], "smoke", steps=100, warmup=1, loops=["bare"], device="cpu")
    found = result["gans"].pop("dcgan")
    assert not result["gans"], "the next training does not begin"
    assert 1 <= found["steps"] < 10
    assert found["largest_weight_difference"] == 0
    assert f"dcgan: stopped after {found['steps']} of 100 timed steps" in capsys.readouterr().out


def test_freezing_saves_the_discriminators_weight_gradients(smoke):
    loops = smoke[0]["gans"]["dcgan"]["loops"]
    width, batch = 8, 8
    layers = (8 * 8) * 16 * 3 * width + (4 * 4) * 16 * width * (2 * width)  # 16x16 to 8x8 to 4x4
    head = 4 * 4 * 2 * width
    pass_of_discriminator = 2 * batch * (layers + head)
    assert loops["tutorial"]["flops_per_step"] - loops["bare"]["flops_per_step"] == pass_of_discriminator


def test_losses_stay_close_to_the_tutorials():
    settings = {"image_size": 16, "generator_width": 8, "discriminator_width": 8}
    tutorial = TutorialLoop(DCGAN(channels_last=False, **settings))
    bare = BareLoop(DCGAN(**settings), bf16=False, ema_decay=0.999)
    images = torch.rand(16, 3, 16, 16) * 2 - 1
    for _ in range(3):
        theirs, ours = tutorial.step(images), bare.step(images)
    assert theirs["generator"] == pytest.approx(float(ours["generator"]), rel=1e-2)


MIMICRY = """
import torch
class Network(torch.nn.Linear):
    def __init__(self):
        super().__init__(1, 1)
        self.steps = []
    def train_step(self, batch, log_data, device, scaler, netG=None, netD=None, optD=None, optG=None):
        self.steps.append(len(batch[0]))
        log_data["errD" if netG is not None else "errG"] = float((netG or netD).weight.detach().sum())
class SNGANGenerator32(Network): pass
class SNGANDiscriminator32(Network): pass
"""


def test_torch_mimicry_alternates_with_its_own_steps(tmp_path, monkeypatch):
    """Here a stub of its package, which is imported without what it imports at its top."""
    files = {"nets/sngan/sngan_32.py": MIMICRY, "training/metric_log.py": "MetricLog = dict", "__init__.py": "1 / 0"}
    for name, text in files.items():
        (tmp_path / "torch_mimicry" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "torch_mimicry" / name).write_text(text)
    for name in [name for name in sys.modules if name.startswith("torch_mimicry")]:
        monkeypatch.delitem(sys.modules, name)
    from benchmarks.loops import MimicryLoop

    loop = MimicryLoop(str(tmp_path), "sngan", 5, torch.device("cpu"))
    assert loop.step(torch.zeros(10, 3, 32, 32)).keys() == {"discriminator", "generator"}
    assert loop.networks["discriminator"].steps == [2] * 5
    assert loop.networks["generator"].steps == [2]
    for name in [name for name in sys.modules if name.startswith("torch_mimicry")]:
        del sys.modules[name]
