import re
import subprocess
import sys

import numpy as np
import pytest

from lit_gans.common.errors import RefusedInput, install_command
from lit_gans.data import faces
from lit_gans.data.faces import ATTRIBUTES, NONE, attributes_of, code_of, draw, matches, render, svg_of, visible

MANY = [draw(0, index) for index in range(1500)]
RED = (255, 0, 0)


def face(**options):
    """A face without hat, glasses and beard, with some options."""
    plain = draw(0, 0) | {"hat": NONE, "hair": "short_flat", "glasses": NONE, "beard": NONE, "clothing": "hoodie"}
    return visible(plain | options)


def test_attributes_are_a_function_of_seed_index_and_name_alone():
    assert draw(0, 5) == MANY[5]
    assert draw(1, 5) != MANY[5]
    assert len({tuple(each.values()) for each in MANY}) == len(MANY)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_options_have_their_stated_probabilities(name):
    attribute = ATTRIBUTES[name]
    drawn = [each[name] for each in MANY]
    others = [option for option in attribute.options if option != NONE]
    assert {*drawn} <= {*attribute.options}
    shares = {option: (1 - attribute.absent) / len(others) for option in others} | {NONE: attribute.absent}
    for option, probability in shares.items():
        deviation = (probability * (1 - probability) / len(MANY)) ** 0.5
        assert abs(drawn.count(option) / len(MANY) - probability) <= 4.5 * deviation


def test_attributes_are_independent():
    hats, glasses = (np.array([each[name] != NONE for each in MANY]) for name in ("hat", "glasses"))
    assert abs(np.corrcoef(hats, glasses)[0, 1]) < 4.5 / len(MANY) ** 0.5


def test_a_uniform_number_selects_an_option_by_its_share():
    attribute = faces.Attribute("a b", absent=0.5)
    assert [attribute.drawn(each) for each in (0, 0.4999, 0.5, 0.7499, 0.75, 1 - 2**-53)] == [NONE, NONE, *"aabb"]


def test_codes_of_visible_faces_are_decoded_exactly():
    seen = [visible(each) for each in MANY[:200]]
    numbers = attributes_of(np.array([code_of(each) for each in seen]))
    for row, each in enumerate(seen):
        assert {name: ATTRIBUTES[name].options[numbers[name][row]] for name in ATTRIBUTES} == each


def test_codes_fit_into_63_bits():
    assert code_of({name: each.options[-1] for name, each in ATTRIBUTES.items()}) < 2**63


def test_a_hat_replaces_the_hair_and_its_color():
    seen = face(hat="winter_hat_1", hair="bob")
    assert (seen["hair"], seen["hair_color"]) == (NONE, NONE)
    assert face(hat="winter_hat_1", beard="beard_medium", hair_color="red")["hair_color"] == "red"
    assert face()["hat_color"] == NONE


@pytest.mark.parametrize(("top", "hidden"), [({"hat": "hijab"}, "beard"), ({"hair": "long_hair_curly"}, "glasses")])
def test_what_a_top_has_no_place_for_is_none(top, hidden):
    option = ATTRIBUTES[hidden].options[-1]
    assert face(**{hidden: option})[hidden] == option
    assert face(**top, **{hidden: option})[hidden] == NONE


@pytest.mark.runs
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_is_visible_exactly_where_its_options_draw_differently(name):
    """Compares pictures, in which a face differs in one attribute."""
    covers = {"eyes": {"glasses": "kurt"}, "eyebrows": {"hat": "jedi"}}.get(name)
    for number, each in enumerate(MANY[:60]):
        options = [option for option in ATTRIBUTES[name].options if option != NONE]
        first, second = (each | {name: options[(number + more) % len(options)]} for more in (0, 1))
        shows = visible(first)[name] != NONE or visible(second)[name] != NONE
        if name in ("hat", "hair") and not shows:
            continue  # hair under a hat
        pictures = [np.asarray(render(visible(each), 96, RED)) for each in (first, second)]
        covered = covers is not None and matches(visible(first), covers)
        assert np.array_equal(*pictures) == (not shows or covered), each


def test_hair_that_never_shows_a_color_has_none():
    assert face(hair="straight_2", hair_color="red")["hair_color"] == NONE
    assert face(hair="straight_2", hair_color="red", beard="beard_medium")["hair_color"] == "red"
    red, black = (face(hair="straight_2") | {"hair_color": color} for color in ("red", "black"))
    assert np.array_equal(*(np.asarray(render(each, 96, RED)) for each in (red, black)))


def test_every_option_is_drawn_by_the_package():
    for name, attribute in ATTRIBUTES.items():
        for option in attribute.options:
            assert svg_of(face(**{name: option})).startswith("<svg")


def test_colors_are_those_of_the_attributes():
    pixels = np.asarray(render(face(skin="yellow", clothing="shirt_crew_neck", clothing_color="blue_03"), 64, RED))
    assert pixels.shape == (64, 64, 3)
    assert pixels[0, 0].tolist() == [255, 0, 0], "background"
    for color in ((0xF8, 0xD2, 0x5C), (0x25, 0x55, 0x7C)):  # of the skin and of the clothes
        assert (pixels == color).all(2).mean() > 0.05


def test_in_a_rectangle_a_face_is_as_large_as_the_shorter_side():
    square, wide = (np.asarray(render(face(), size, RED)).astype(int) for size in (64, (64, 96)))
    assert wide.shape == (64, 96, 3)
    assert np.abs(wide[:, 16:80] - square).max() <= 3
    assert (wide[:, :10] == RED).all()


def test_without_a_background_it_is_transparent():
    picture = render(face(), 32, None)
    assert picture.mode == "RGBA"
    assert picture.getpixel((0, 0))[3] == 0
    assert picture.getpixel((16, 16))[3] == 255


def test_a_rule_matches_faces_with_all_of_its_options():
    each = face(glasses="round", beard="beard_light")
    assert matches(each, {"glasses": "round", "beard": ["wick_beard", "beard_light"]})
    assert not matches(each, {"glasses": "round", "beard": "wick_beard"})


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"hats": "hijab"}, "there is no attribute 'hats': did you mean 'hat'"),
        ({"hat": "turbann"}, "the attribute 'hat' has no option 'turbann': did you mean 'turban'"),
        ({"eyes": [NONE]}, "the attribute 'eyes' has no option 'none'"),
    ],
)
def test_unknown_attributes_and_options_are_refused(rule, message):
    with pytest.raises(RefusedInput, match=message):
        faces.raise_if_unknown(rule, "data.held_out")


@pytest.mark.runs
def test_importing_the_designs_changes_no_random_number():
    code = """
import random
random.seed(0); expected = random.random()
random.seed(0)
from lit_gans.data.faces import draw, identity_of_faces
identity_of_faces(); draw(0, 0)
assert random.random() == expected
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_the_package_the_extra_is_named(monkeypatch):
    faces._avatars.cache_clear()
    monkeypatch.setitem(sys.modules, "python_avatars", None)
    with pytest.raises(RefusedInput, match=re.escape(install_command("avatars"))):
        faces.identity_of_faces()
    faces._avatars.cache_clear()


def test_another_size_of_the_drawings_is_refused(monkeypatch):
    monkeypatch.setattr(faces, "svg_of", lambda face: '<svg width="100px" height="100px"></svg>')
    with pytest.raises(RefusedInput, match="draws at an unexpected size"):
        render(face(), 32, None)
