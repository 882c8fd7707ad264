import inspect
import re

import numpy as np
import pytest
import torch

from lit_gans.common.errors import RefusedInput
from lit_gans.data import faces
from lit_gans.data.faces import ATTRIBUTES, NONE
from lit_gans.data.sources.avatars import AvatarChange, AvatarOutlines, Avatars, Faces


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("avatars"))


def of(cls, cache, **settings):
    return cls(**{"num_images": 40, "image_size": 16, "cache": cache} | settings)


def test_faces_depend_on_seed_and_index_and_not_on_their_number(cache):
    few, many = (of(Avatars, cache, num_images=number).packed.images for number in (20, 40))
    assert many[:20].equal(few)
    assert not of(Avatars, cache, num_images=20, faces_seed=1).packed.images.equal(few)


def test_the_classes_are_the_options_of_the_label(cache):
    plain, hats = of(Avatars, cache), of(Avatars, cache, label="hat")
    assert hats.packed_path == plain.packed_path, "attributes are stored with the images, whatever the label"
    assert (plain.num_classes, plain.packed.labels.count_nonzero()) == (0, 0)
    assert hats.class_names == [*ATTRIBUTES["hat"].options]
    expected = [faces.visible(faces.draw(0, index, 0))["hat"] for index in range(40)]
    assert [hats.class_names[label] for label in hats.packed.labels] == expected
    assert hats.attributes["hat"].equal(hats.packed.labels)
    assert hats.dataset[torch.arange(40)]["label"].equal(hats.packed.labels)


@pytest.mark.parametrize("placement", ["memory", "disk"])
def test_labels_are_served_with_the_images(cache, placement):
    data = of(Avatars, cache, label="skin", placement=placement, batch_size=20, num_workers=0)
    served = torch.cat([batch["label"] for batch in data.train_dataloader()])
    assert served.bincount(minlength=7).equal(data.packed.labels.bincount(minlength=7))
    assert len(served.unique()) > 2


def test_held_out_combinations_are_never_drawn(cache):
    rule = {"hat": NONE, "glasses": ["round", "kurt", NONE]}
    numbers = of(Avatars, cache, held_out=rule).attributes
    options = {name: [ATTRIBUTES[name].options[each] for each in numbers[name]] for name in rule}
    assert not any(hat == NONE and glasses in rule["glasses"] for hat, glasses in zip(*options.values(), strict=True))
    assert NONE in options["hat"]
    assert "kurt" in options["glasses"] or "round" in options["glasses"] or NONE in options["glasses"]


@pytest.mark.parametrize("rule", [{}, {"hat": [*ATTRIBUTES["hat"].options]}])
def test_a_rule_that_leaves_nothing_is_refused(rule):
    with pytest.raises(RefusedInput, match="leaves no face"):
        Avatars(held_out=rule)


NEVER = [
    {"hat": "hijab", "beard": "beard_light"},
    {"hat": "hijab", "hair": ["bob", "bun"]},
    {"hat": "turban", "hat_color": NONE},
]


@pytest.mark.parametrize("rule", NEVER)
def test_a_rule_that_excludes_nothing_is_refused(rule):
    with pytest.raises(RefusedInput, match="excludes no face, because no face shows these options together"):
        Avatars(held_out=rule)


def test_a_rule_that_leaves_a_class_empty_is_refused():
    colors = [*ATTRIBUTES["hat_color"].options]
    for rule in ({"hat": "winter_hat_1"}, {"hat": ["hijab", "winter_hat_1"], "hat_color": colors}):
        with pytest.raises(RefusedInput, match=r"leaves classes of data\.label=hat without faces"):
            Avatars(label="hat", held_out=rule)
    assert Avatars(label="glasses", held_out={"hat": "winter_hat_1"}).num_classes > 1
    assert Avatars(label="hat", held_out={"hat": "winter_hat_1", "glasses": "round"}).num_classes == 11


def test_faces_are_not_cropped():
    with pytest.raises(RefusedInput, match=r"data\.crop is not supported"):
        AvatarOutlines(crop=16)


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({"hat": []}, "data.held_out.hat=[] must be an option, or a list of options, of hat"),
        ({"hat": None}, "data.held_out.hat=None must be an option"),
        ({"hat": 3}, "data.held_out.hat=3 must be an option"),
        ({"hat": True}, "data.held_out.hat=True must be an option"),
        ({"hat": ["hat", 3]}, "data.held_out.hat=['hat', 3] must be an option"),
    ],
)
def test_a_rule_of_something_else_than_options_is_refused(rule, sentence):
    with pytest.raises(RefusedInput, match=re.escape(sentence)):
        inspect.unwrap(faces.raise_if_unknown)(rule, "data.held_out")  # without the check of types in these tests


def test_unknown_attributes_and_too_few_faces_are_refused(cache):
    with pytest.raises(RefusedInput, match="label='hats' is not valid: expected 'hat', 'hair'"):
        Avatars(label="hats")
    with pytest.raises(RefusedInput, match="attribute='hats' is not valid: expected 'glasses', 'beard', 'hat'"):
        AvatarChange(attribute="hats")
    for source in (AvatarOutlines, AvatarChange):
        with pytest.raises(RefusedInput, match=r"data\.num_images=9 must be at least 10"):
            source(num_images=9)
        of(source, cache, num_images=10)


def test_outlines_are_black_lines_where_colors_meet(cache):
    data = of(AvatarOutlines, cache, image_size=64, num_images=20)
    assert len(data.packed.images) == 18
    pairs = data.held_out
    lines, drawings = pairs["input"].numpy(), pairs["image"].numpy()
    assert lines.shape == drawings.shape == (2, 3, 64, 64)
    assert (lines[:, 0] == lines[:, 1]).all(), "no color is left"
    assert 0.05 < (lines[:, 0] < 128).mean() < 0.4
    flat = np.abs(np.diff(drawings.astype(int), axis=3)).max(1)[:, :, 1:] == 0
    assert (lines[:, 0, :, 1:-1][flat] > 200).mean() > 0.8, "where the color does not change, there is no line"


@pytest.mark.parametrize("attribute", ["glasses", "beard", "hat"])
def test_held_out_pairs_differ_in_the_attribute_alone(cache, attribute):
    data = of(AvatarChange, cache, attribute=attribute)
    with_it, without = data.domains(held_out=True)
    assert len(with_it) == len(without) == 4
    hidden = {"hat": {"hat", "hair", "hat_color", "hair_color", "glasses", "beard"}}.get(
        attribute, {attribute, "hair_color"}
    )
    for row in range(4):
        first, second = (faces.visible(each.attributes(row)) for each in (with_it, without))
        assert first[attribute] != NONE
        assert second[attribute] == NONE
        assert {name for name in first if first[name] != second[name]} <= hidden
    pairs = data.held_out
    assert (pairs["input"] != pairs["image"]).flatten(1).any(1).all()


def test_the_domains_of_the_training_have_no_face_in_common(cache):
    data = of(AvatarChange, cache)
    with_it, without = data.domains()
    held_out, _ = data.domains(held_out=True)
    assert not {*with_it.indices} & {*without.indices}
    assert not {*held_out.indices} & {*with_it.indices, *without.indices}
    for row in range(len(with_it)):
        assert faces.visible(with_it.attributes(row))["glasses"] != NONE
        assert faces.visible(without.attributes(row))["glasses"] == NONE


def test_transparent_faces_keep_their_background(cache):
    assert of(Avatars, cache, channels=4).packed.images[:, 3, 0, 0].eq(0).all()
    assert of(Avatars, cache, background=(0, 255, 0)).packed.images[0, :, 0, 0].tolist() == [0, 255, 0]


def test_names_are_for_messages():
    assert Faces(range(3, 5), 8, None).name(1) == "avatar 4"
