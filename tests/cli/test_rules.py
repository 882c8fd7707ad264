"""The rules of `lit-gans plan`, against the published ones and by hand."""

from dataclasses import dataclass

import pytest

from lit_gans import LinearSchedule
from lit_gans.cli import rules
from lit_gans.cli.rules import Candidate
from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import sides
from lit_gans.data.survey import Survey
from lit_gans.networks.blocks import coarsest_map
from lit_gans.training.schedules import Progress

SQUARE = Survey(1000, 0, 300, 300, True, 3)


@pytest.mark.parametrize(
    ("height", "width", "shorter", "size"),
    [(200, 300, 64, (64, 96)), (300, 200, 64, (96, 64)), (300, 330, 64, 64), (90, 160, 32, (32, 56))],
)
def test_images_of_the_same_shape_give_a_rectangle_that_the_networks_support(height, width, shorter, size):
    found = rules.image_size(Survey(10, 0, height, width, True, 3), shorter)
    assert found == size
    assert coarsest_map(found, "dcgan")[1] == shorter.bit_length() - 3
    assert rules.image_size(Survey(10, 0, height, width, False, 3), shorter) == shorter


def test_images_are_not_enlarged():
    assert rules.possible_sizes(SQUARE) == [32, 64, 128, 256]
    assert rules.possible_sizes(Survey(10, 0, 100, 100, True, 3)) == [32, 64]
    assert rules.possible_sizes(Survey(10, 0, 20, 20, True, 3)) == [32]


def test_the_largest_images_that_are_learned_are_chosen_and_then_the_width():
    per_image = rules.scaled(1e-3, (64, 32))
    assert per_image(64, 32) == pytest.approx(1e-3)
    assert per_image(128, 32) == pytest.approx(4e-3)
    assert per_image(64, 64) == pytest.approx(1e-3 * 2**1.7)

    def chosen(seconds):
        return rules.network([32, 64, 128], (32, 64, 128), seconds, per_image)

    enough = rules.enough(64) * 1e-3
    assert chosen(enough / 1000) == (32, 32), "the smallest, if even that is too much"
    assert chosen(0.99 * enough)[0] == 32
    assert chosen(1.01 * enough) == (64, 32)
    assert chosen(4.01 * 2**1.7 * enough) == (64, 64), "wider, if it sees four times as many images as it needs"
    assert chosen(16.01 * enough) == (128, 32), "four times the pixels need four times the images"


def test_batch_gamma_and_average_are_those_of_stylegan2_ada_and_batches_not_larger_than_the_data():
    assert [rules.batch_size(side, 10**6) for side in (32, 64, 128, 256)] == [32, 32, 32, 16]
    assert [rules.batch_size(64, num) for num in (1, 5, 31, 32)] == [1, 4, 16, 32]
    assert [rules.batch_sizes(num, "dcgan") for num in (5, 20, 10**6)] == [[4], [16, 8], [32, 8, 16, 64]]
    assert rules.batch_sizes(200, "r3gan") == [32, 8, 16, 64, 128]
    # its train.py prints gamma 0.0256 for images of 64 pixels on one GPU, and 0.819 for 256
    assert [rules.gamma(64, 32), rules.gamma(256, 16)] == [0.0256, 0.819]
    assert [rules.half_life(batch)["end"] for batch in (32, 16)] == [10_000, 5_000]
    half_life = LinearSchedule(**{key: value for key, value in rules.half_life(32).items() if key != "_target_"})
    seen = [Progress(images=images) for images in (0, 40_000, 200_000, 10**6)]
    assert [half_life.at(progress) for progress in seen] == [0, 2_000, 10_000, 10_000]


def test_the_weights_of_r3gan_pass_through_its_presets():
    assert rules.r3gan(64)["model.r1_gamma.start"] == 2
    assert rules.r3gan(256)["model.r1_gamma.start"] == pytest.approx(150, rel=0.02)
    assert rules.r3gan(32)["model.r1_gamma.start"] == pytest.approx(0.2, rel=0.2)
    assert rules.r3gan(32)["model.r1_gamma.end"] == pytest.approx(0.023)


@pytest.mark.parametrize(("num", "each"), [(100, 0.001), (2624, 0.02), (10**6, 0.01)])
@pytest.mark.parametrize("seconds", [60, 3600, 86400])
def test_evaluations_take_at_most_a_tenth_of_the_time(seconds, num, each):
    found = rules.evaluation(seconds, num, each, 1.1 * each)
    if found is None:
        assert num * each + 2 * 1000 * 1.1 * each > 0.1 * seconds
        return
    assert found.seconds == pytest.approx(num * each + found.times * found.num_samples * 1.1 * each)
    assert found.seconds <= 0.1 * seconds
    assert found.times == 10 or found.seconds + found.num_samples * 1.1 * each > 0.1 * seconds, "as often as possible"
    assert found.times >= 2


def test_iterations_have_two_digits():
    assert [rules.iterations(seconds, 0.05, 2) for seconds in (0.05, 0.5, 9.95, 123.4)] == [1, 5, 99, 1200]


def test_no_training_is_longer_than_that_of_stylegan2_ada():
    assert rules.iterations(1e9, 1e-3, 32) == 780_000, "25 million images"


# ---- what is chosen on a GPU, from invented timings


@dataclass(frozen=True)
class Device:
    """An invented GPU, for the networks of `experiment=photos`.

    The host launches 1,300 operations per iteration, in 10 µs each. At 64x64 and a width of 32, an image has 0.6 GFLOP
    (both counted on a CPU). At 256x256, an image takes 60 MB, and the networks have 6 million weights.

    Args:
        rate: floating-point operations per second at a width of 32; wider convolutions compute faster.
        memory: free memory in bytes.
    """

    rate: float
    memory: int = 80 * 10**9

    def __call__(self, candidate):
        height, width = sides(candidate.size)
        area, wider = height * width / 64**2, candidate.width / 32
        peak = candidate.batch * 60e6 * area / 16 * wider + 16 * 6e6 * wider**2
        if not rules.fits(int(peak), self.memory):
            return None
        return max(1300 * 10e-6, candidate.batch * 0.6e9 * area * wider**1.7 / self.rate) / candidate.batch


DEVICES = {
    "laptop": Device(2.5e12, 6 * 10**9),
    "A100": Device(8e12),
    "H100": Device(20e12),
}


def share(minutes):
    """The seconds of iterations; the rest is for evaluations, and for what is not an iteration."""
    return 0.85 * 60 * minutes


def chosen(measure, minutes, num=1_000, model="dcgan", widths=rules.WIDTHS):
    sizes, batches = rules.possible_sizes(SQUARE), rules.batch_sizes(num, model)
    return rules.candidate_on_gpu(sizes, widths, batches, share(minutes), measure)


# On one GPU, train.py of StyleGAN2-ADA chooses for 256x256: 64 to 512 channels, which is a width of 64 here, batches of
# 16, gamma 0.82 and 25 million images (25,000 kimg). On eight GPUs, it chooses batches of 64 and gamma 0.2; the preset
# paper256 has batches of 64, too. R3GAN's preset for 256x256 has batches of 256. The number of pictures changes none of
# these values, because the adaptive augmentation is for few pictures, so it changes nothing here either.
@pytest.mark.parametrize("num", [1_000, 100_000])
@pytest.mark.parametrize(
    ("device", "minutes", "size", "width", "batch", "kimg", "gamma"),
    [
        # 256x256 would process 0.8 million images, and a training needs 0.96 million. Twice as wide as the smallest,
        # 4 times the images that 128x128 needs.
        ("laptop", 60, 128, 64, 64, 980, 0.0512),
        # 256x256 is possible, but a width of 64 would process 2.4 million images, instead of 3.8
        ("laptop", 600, 256, 32, 64, 7_900, 0.205),
        # an hour is a tenth of the preset's images at most, so the networks stay narrow
        ("A100", 60, 256, 32, 64, 2_500, 0.205),
        # the width, batch and gamma of the preset on several GPUs, and a third of its images
        ("A100", 600, 256, 64, 64, 7_800, 0.205),
        ("H100", 60, 256, 32, 64, 6_300, 0.205),
        # twice the channels of the preset: the authors double them from 512x512 on
        ("H100", 600, 256, 128, 64, 5_900, 0.205),
        # a day: at most the preset's images
        ("H100", 2880, 256, 128, 64, 25_000, 0.205),
    ],
)
def test_what_gpus_train_for_few_and_many_pictures(num, device, minutes, size, width, batch, kimg, gamma):
    found = chosen(DEVICES[device], minutes, num)
    assert found == Candidate(size, width, batch)
    images = batch * rules.iterations(share(minutes), DEVICES[device](found), batch)
    assert images / 1000 == pytest.approx(kimg, rel=0.03)
    assert rules.gamma(size, batch) == gamma


def test_batches_of_r3gan_grow_towards_its_presets_and_not_beyond_the_time():
    assert chosen(DEVICES["H100"], 600, model="r3gan", widths=(64,)).batch == 256
    assert chosen(DEVICES["H100"], 60, model="r3gan", widths=(64,)).batch == 64


def test_small_networks_of_a_gpu_say_nothing_about_large_ones():
    """Only 64x64 was timed, which measured launches. An H100 trained 128x128, as if 256x256 took 16 times as long."""
    device, seconds = DEVICES["H100"], share(10)
    launches = rules.scaled(device(Candidate(64, 32, 32)), (64, 32))
    assert rules.network([32, 64, 128, 256], rules.WIDTHS, seconds, launches)[0] == 128
    assert chosen(device, 10).size == 256


def test_a_gpu_measures_the_largest_candidates_first_and_what_it_chooses():
    measured = []

    def measure(candidate):
        measured.append(candidate)
        return DEVICES["H100"](candidate)

    found = chosen(measure, 600)
    assert list(dict.fromkeys(measured)) == [Candidate(256, 32, 32), Candidate(256, 128, 32), Candidate(256, 128, 64)]
    assert found == measured[-1]


def test_a_short_training_keeps_small_batches_and_few_pictures_do_too():
    slow = Device(0.31e12)  # 512 images/s at 64x64, and 32 at 256x256: for an hour, 128x128 in just enough images
    assert chosen(slow, 60) == Candidate(128, 32, 32)
    assert chosen(DEVICES["H100"], 60, num=20).batch == 16


def test_without_memory_batches_become_smaller_then_networks_and_then_an_error():
    assert chosen(Device(8e12, 800_000_000), 600) == Candidate(256, 32, 8), "a width of 64 needs 1.3 GB"
    assert chosen(Device(8e12, 300_000_000), 600).size == 128
    with pytest.raises(RefusedInput, match=r"not enough free memory for data.batch_size=8 with images of 32x32 and"):
        chosen(Device(8e12, 100_000_000), 600)
    with pytest.raises(RefusedInput, match=r"data.batch_size=16 with images of 64x64 and model.generator_width=32"):
        rules.candidate_on_cpu([64], (32,), lambda _: 16, 60, lambda _: None)


@pytest.mark.parametrize(
    ("minutes", "size"),
    [(1, 32), (15, 64), (60, 64), (600, 128)],
)
def test_a_cpu_measures_one_small_size_and_scales_the_time(minutes, size):
    """A core that makes 98 images of 64x64 in a second, as in docs/guides/photos.md."""
    measured = []

    def measure(candidate):
        measured.append(candidate)
        return rules.scaled(1 / 98, (64, 32))(candidate.size, candidate.width)

    sizes = rules.possible_sizes(SQUARE)

    def batch(size):
        return rules.batch_size(size, 1_000)

    found = rules.candidate_on_cpu(sizes, rules.WIDTHS, batch, share(minutes), measure)
    assert found == Candidate(size, 32, 32)
    assert measured == [Candidate(64, 32, 32)]
