"""The step benchmark: what it reports, and that its loops do the same work. No timing is asserted."""

import json

import pytest
import torch

from benchmarks.loops import BareLoop, TutorialLoop
from benchmarks.measure import count_flops, spread
from benchmarks.step import step
from lit_gans.common.errors import RefusedInput
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
    return step("smoke", output=str(path), steps=5, log_every_n_steps=2, device="cpu"), path


def test_result_is_written_and_complete(smoke):
    result, path = smoke
    assert json.loads(path.read_text()) == result
    assert (result["image_size"], result["batch_size"], result["steps"], result["device"]) == (16, 8, 5, "cpu")
    assert set(result["loops"]) == LOOPS
    for loop in result["loops"].values():
        assert loop["seconds"]["lower_quartile"] <= loop["seconds"]["median"] <= loop["seconds"]["upper_quartile"]
        assert min(loop["images_per_second"], loop["flops_per_second"], loop["share_of_matrix_product"]) > 0
    assert result["loops"]["tutorial"]["speedup_over_tutorial"]["median"] == 1
    assert result["loops"]["bare"]["cost_over_bare"]["median"] == 0
    assert min(result["matrix_product"]["before"], result["matrix_product"]["after"]) > 0


def test_table_and_json_are_printed(capsys):
    result = step("smoke", steps=1, warmup=1, device="cpu")
    printed = capsys.readouterr().out
    assert json.loads(printed.splitlines()[-1]) == result
    for text in (*LOOPS, "images/s", "GFLOP/s", "speedup over tutorial", "cost over bare", "peak memory"):
        assert text in printed


def test_first_losses_are_equal(smoke):
    first = smoke[0]["first_step"]
    assert set(first["losses"]) == LOOPS
    assert first["losses"]["bare"] == first["losses"]["lit_gans"]
    assert first["losses"]["tutorial"] == pytest.approx(first["losses"]["lit_gans"], rel=1e-4)
    assert first["equal"]


def test_bare_and_lit_gans_do_the_same_work(smoke):
    assert smoke[0]["largest_weight_difference"] == 0  # five steps, generator, discriminator and average


def test_bf16(smoke):
    result = step("smoke", steps=1, warmup=1, precision="bf16", device="cpu")
    assert result["largest_weight_difference"] == 0
    assert result["first_step"]["equal"]
    assert result["first_step"]["losses"]["lit_gans"] != smoke[0]["first_step"]["losses"]["lit_gans"]


def test_freezing_saves_the_discriminators_weight_gradients(smoke):
    loops = smoke[0]["loops"]
    width, batch = 8, 8
    layers = (8 * 8) * 16 * 3 * width + (4 * 4) * 16 * width * (2 * width)  # 16x16 to 8x8 to 4x4
    head = 4 * 4 * 2 * width
    pass_of_discriminator = 2 * batch * (layers + head)
    saved = loops["tutorial"]["flops_per_step"] - loops["bare"]["flops_per_step"]
    assert saved == pass_of_discriminator


def test_losses_stay_close_to_the_tutorials():
    settings = {"image_size": 16, "generator_width": 8, "discriminator_width": 8}
    tutorial = TutorialLoop(DCGAN(channels_last=False, **settings))
    bare = BareLoop(DCGAN(**settings), bf16=False, ema_decay=0.999)
    images = torch.rand(16, 3, 16, 16) * 2 - 1
    for _ in range(3):
        theirs, ours = tutorial.step(images), bare.step(images)
    assert theirs["generator"] == pytest.approx(float(ours["generator"]), rel=1e-2)


def test_wrong_values_are_refused():
    with pytest.raises(RefusedInput, match="steps=0"):
        step("smoke", steps=0)
    with pytest.raises(RefusedInput, match="image_size=20"):
        step(image_size=20)


def test_spread():
    assert spread([3.0, 1.0, 2.0]) == {"median": 2.0, "lower_quartile": 1.5, "upper_quartile": 2.5}
    assert set(spread([4.0]).values()) == {4.0}


def test_count_flops():
    left, right = torch.ones(2, 3), torch.ones(3, 5)
    assert count_flops(lambda: left @ right) == 2 * 2 * 3 * 5
