"""The rules of `lit-gans plan`, against the published ones and by hand."""

import pytest

from lit_gans import LinearSchedule
from lit_gans.cli import rules
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
    assert [rules.iterations(seconds, 0.1) for seconds in (0.05, 0.5, 9.95, 123.4)] == [1, 5, 99, 1200]
