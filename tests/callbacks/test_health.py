"""The verdict on recorded trainings, most of them broken on purpose, and what it is made of."""

import json
from dataclasses import replace

import pytest
import torch

from lit_gans.callbacks.health import TWIN, Look, copied, energy_distance, twins, verdict

from .health_runs import EVERY, FILE, RUNS

PATIENCE = 500


def recorded(name):
    rows = json.loads(FILE.read_text())[name]
    return [Look(**row | {"classes": tuple(row["classes"])}) for row in rows]


@pytest.mark.parametrize("every", [EVERY, 2 * EVERY])
@pytest.mark.parametrize("name", RUNS)
def test_recorded_trainings(name, every):
    kind, since, *_ = RUNS[name]
    looks = recorded(name)[every // EVERY - 1 :: every // EVERY]
    found = {looks[end - 1].iteration: verdict(looks[:end], PATIENCE)[0] for end in range(1, len(looks) + 1)}
    assert {found[step] for step in found if step < since} <= {"learning", kind}
    assert {found[step] for step in found if step >= since} == {kind}


def looks(num=20, **values):
    """Looks at every 50th iteration at a training that learns, but for some values."""
    healthy = {"accuracy": {"discriminator": 0.7}, "distance": 0.02, "change": 0.4}
    return [Look(50 * (index + 1), **healthy | values) for index in range(num)]


BROKEN_AND_FINE = {
    "memorizing": ({"copies": 0.21}, {"copies": 0.2}),
    "discriminator wins": ({"accuracy": {"discriminator": 1.0}}, {"accuracy": {"discriminator": 0.99}}),
    "stalled": ({"change": 0.019}, {"change": 0.02}),
    "collapsing": ({"twins": 0.26}, {"twins": 0.25}),
}
BROKEN = {kind: broken for kind, (broken, _) in BROKEN_AND_FINE.items()}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_failure_is_told_with_its_measurement_once_it_has_lasted(kind):
    broken = looks(**BROKEN[kind])
    assert verdict(broken, PATIENCE)[0] == kind
    assert verdict(looks(**BROKEN_AND_FINE[kind][1]), PATIENCE)[0] == "learning"
    assert verdict(broken[:10], PATIENCE)[0] == "learning", "500 iterations are too early"
    assert verdict(broken[:11], PATIENCE)[0] == kind


@pytest.mark.parametrize("kind", ["discriminator wins", "stalled", "collapsing"])
@pytest.mark.parametrize("place", [-1, -5, -10])
def test_one_look_without_it_in_the_last_iterations_is_enough(kind, place):
    broken = looks(**BROKEN[kind])
    broken[place] = looks()[place]
    assert verdict(broken, PATIENCE)[0] == "learning"
    broken.insert(0, broken.pop(place))
    broken = [replace(look, iteration=50 * (index + 1)) for index, look in enumerate(broken)]
    assert verdict(broken, PATIENCE)[0] == kind, "earlier ones do not count"


def test_a_discriminator_may_be_right_while_samples_come_closer():
    falling = [replace(look, distance=1.0 / look.iteration) for look in looks(**BROKEN["discriminator wins"])]
    assert verdict(falling, PATIENCE)[0] == "learning"
    assert verdict([replace(look, distance=300.0 / look.iteration) for look in looks()], PATIENCE)[0] == "learning"


LEFT_OUT = {"distance": None, "change": None, "twins": None}


def test_looks_without_a_distance_tell_nothing_that_needs_one():
    sentence = "no distance to the real images, because the batch has no two different real images"
    assert verdict(looks(accuracy={"discriminator": 1.0}, **LEFT_OUT), PATIENCE) == ("learning", sentence)
    assert verdict(looks(3, **LEFT_OUT), PATIENCE) == ("learning", f"{sentence}, too early to say more")
    assert verdict(looks(copies=0.5, **LEFT_OUT), PATIENCE)[0] == "memorizing"
    assert verdict(looks(**LEFT_OUT), PATIENCE, "fid_digits")[0] == "stalled"


@pytest.mark.parametrize("kind", ["stalled", "collapsing"])
def test_checks_without_a_distance_do_not_hide_a_failure_that_other_checks_show(kind):
    broken = [replace(look, **LEFT_OUT) if index % 4 == 0 else look for index, look in enumerate(looks(**BROKEN[kind]))]
    assert verdict(broken, PATIENCE)[0] == kind
    assert verdict([*looks(10, **LEFT_OUT), *then(0.02, 0.4)[10:]], PATIENCE)[0] == "stalled", "it was never closer"
    kind, why = verdict([replace(looks()[0], **LEFT_OUT), *looks()[1:]], PATIENCE)
    assert (kind, why.split(", ")[1][:14]) == ("learning", "initially 0.02")


def then(before, after):
    """Looks at a training whose distance has changed for 500 iterations."""
    return [
        *looks(10, distance=before),
        *(replace(look, iteration=look.iteration + 500, distance=after) for look in looks(10)),
    ]


def test_samples_that_leave_the_real_images_diverge():
    kind, why = verdict(then(0.02, 0.4), PATIENCE)
    assert kind == "diverging"
    assert why.startswith("the distance to the real images is 0.40 and does not fall; its minimum was 0.02.")
    assert verdict(then(0.02, 0.8)[:-7], PATIENCE)[0] == "learning", "for less than half of the patience"
    assert verdict(then(0.02, 0.29), PATIENCE)[0] == "learning", "not far"
    assert verdict(then(0.3, 0.61), PATIENCE)[0] == "diverging"
    assert verdict(then(0.3, 0.59), PATIENCE)[0] == "stalled", "less than twice as far"


def test_two_checks_that_are_further_apart_than_the_patience_show_whether_samples_come_closer():
    distances = (2.0, 1.6, 1.2, 0.9, 0.6)
    checks = [replace(look, iteration=1000 * (index + 1)) for index, look in enumerate(looks(5))]
    closer = [replace(look, distance=distance) for look, distance in zip(checks, distances, strict=True)]
    assert verdict(closer, 500)[0] == "learning"
    assert verdict([replace(look, distance=2.0) for look in checks], 500)[0] == "stalled"


def test_samples_that_stay_far_have_stalled():
    kind, why = verdict(looks(distance=0.31), PATIENCE)
    assert kind == "stalled"
    assert why.startswith("the distance to the real images is 0.31 and does not fall.")
    assert verdict(looks(distance=0.29), PATIENCE)[0] == "learning"


def test_the_energy_distance_is_that_of_its_definition():
    real, fake = torch.randn(7, 3, dtype=torch.double), torch.randn(5, 3, dtype=torch.double) + 1
    mean = lambda a, b, pairs: sum((a[i] - b[j]).norm() for i, j in pairs) / len(pairs)  # noqa: E731
    within = [mean(x, x, [(i, j) for i in range(len(x)) for j in range(i)]) for x in (real, fake)]
    between = mean(real, fake, [(i, j) for i in range(7) for j in range(5)])
    expected = (2 * between - within[0] - within[1]) / within[0]
    assert energy_distance(real, fake).item() == pytest.approx(expected.item())
    points = torch.tensor([[0.0], [1.0]]), torch.tensor([[9.0], [9.0]])
    assert energy_distance(*points).item() == pytest.approx(2 * 8.5 - 1)


def test_twins_are_within_the_radius_and_of_the_same_class():
    images, labels = torch.tensor([[0.0], [0.5], [0.6], [2.0], [2.05]]), torch.tensor([0, 1, 1, 0, 1])
    assert twins(images, torch.tensor(0.2)).tolist() == [False, True, True, True, True]
    assert twins(images, torch.tensor(0.2), labels).tolist() == [False, True, True, False, False]
    assert not twins(images, torch.tensor(0.0)).any()
    assert TWIN < 1


def test_copies_are_closer_than_half_of_the_way_to_the_next_real_image():
    real = torch.tensor([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]])
    samples = torch.tensor([[0.0, 0.49], [0.0, 0.51], [5.0, 1.9], [5.0, 2.1]])
    assert copied(samples, real) == 0.5
    assert copied(real, real) == 1.0
