import pytest
import torch

from lit_gans.metrics import FrechetInceptionDistance
from lit_gans.metrics.scores.base import StoredFeatures
from tests.metrics.cells import ASKED, FAKE, REAL, Pixels, all_scores, evaluator_of, images


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("LIT_GANS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "references"


class Counted(Pixels):
    """Counts the images that it extracts."""

    num = 0

    def forward(self, images):
        self.num += len(images)
        return super().forward(images)


def measured(scores=None, real=None, store=True):
    """Returns the values, and the number of real images that were extracted."""
    extractor = Counted()
    one = evaluator_of(extractor, scores)
    one.add_real(images(100, 0) if real is None else real, store)
    num = extractor.num
    return (one.measure(FAKE), one.real_halves), num


def fid():
    return {"fid": FrechetInceptionDistance()}


def test_a_second_run_extracts_no_real_image_and_measures_bitwise_the_same():
    (first, num), (second, none) = measured(), measured()
    assert (num, none) == (100, 0)
    assert second == first
    assert measured(store=False) == (first, 100)


DAMAGES = [lambda data: data[: len(data) // 2], lambda data: data[:-9] + b"?" * 9, lambda _: b""]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_rebuilt_with_a_warning(folder, damage):
    first, _ = measured()
    (path,) = folder.iterdir()
    unbroken = path.read_bytes()
    path.write_bytes(damage(unbroken))
    with pytest.warns(UserWarning, match="are damaged .* computed again"):
        assert measured() == (first, 100)
    assert path.read_bytes() == unbroken


def test_scores_reuse_the_file_of_scores_with_the_same_states_only(folder):
    def extracted(*names):
        return measured({name: score for name, score in all_scores().items() if name in names})[1]

    assert [extracted("fid"), extracted("kid", "fid"), extracted("fid")] == [100, 100, 0]
    assert extracted("prdc", "fid", "inception_score") == 0
    assert len(list(folder.iterdir())) == 2


def test_a_folder_that_cannot_be_written_costs_a_warning(folder):
    folder.parent.mkdir()
    folder.touch()
    with pytest.warns(UserWarning, match="cannot be saved"):
        measured()


def test_a_folder_whose_name_is_too_long_costs_a_warning(folder, monkeypatch):
    folder.mkdir(parents=True)
    monkeypatch.setenv("LIT_GANS_CACHE", str(folder / ("x" * 300)))
    with pytest.warns(UserWarning, match="cannot be saved in"):
        measured()


def test_states_of_code_elsewhere_are_not_stored(folder):
    class Mine(StoredFeatures):
        directions = {"mine": "min"}

        def compute(self):
            return self.stored()[0].mean()

    class WithStates(Mine):
        def add_states(self):
            super().add_states()

    assert measured({"mine": WithStates()})[1] == measured({"mine": WithStates()})[1] == 100
    assert not folder.exists()
    assert [measured({"mine": Mine()})[1] for _ in range(2)] == [100, 0]


class Scaled(Pixels):
    """A module of a user, whose widths are those of an image; its digest does not tell what it does."""

    num_logits = None
    scale = 1.0

    def forward(self, images):
        pixels, logits = super().forward(images)
        return self.scale * pixels, logits


class Weighted(Pixels):
    """Its digest tells what it does."""

    def __init__(self, weight):
        super().__init__()
        self.register_buffer("weight", torch.tensor(weight))


def test_the_name_depends_on_images_and_extractor_and_not_on_batches(folder):
    def is_new(real, batch_size=16, extractor=None, **attributes):
        before, extractor = set(folder.glob("*")), extractor or Pixels()
        vars(extractor).update(attributes)
        evaluator_of(extractor, fid(), batch_size=batch_size).add_real(real, store=True)
        return set(folder.glob("*")) > before

    assert is_new(images(100, 0))
    assert not is_new(images(100, 0), batch_size=7)
    assert is_new(images(100, 1))
    assert is_new(images(99, 0))
    assert is_new(images(100, 0).reshape(100, 1, 1, 4))
    assert is_new(images(100, 0), extractor=type("Derived", (Pixels,), {})())
    assert is_new(images(100, 0), name="other")
    assert is_new(images(100, 0), resize="nearest to 2x2")
    assert is_new(images(100, 0), extractor=Weighted(1.0))
    assert not is_new(images(100, 0), extractor=Weighted(1.0))
    assert is_new(images(100, 0), extractor=Weighted(2.0))
    assert is_new(images(100, 0), extractor=Scaled())
    assert not is_new(images(100, 0), extractor=Scaled())
    assert is_new(images(100, 0), extractor=Scaled(), scale=2.0)


def test_other_classes_of_the_same_images_are_other_statistics(folder):
    def values(labels):
        one = evaluator_of(num_classes=4)
        one.add_real(REAL.images, store=True, labels=labels)
        return one.measure(FAKE, ASKED)

    first, other = values(REAL.real_labels()), values(REAL.real_labels().flip(0))
    assert values(REAL.real_labels()) == first
    assert first["metric/fid_pixels"] == other["metric/fid_pixels"]
    assert first["metric/intra_fid_pixels"] != other["metric/intra_fid_pixels"]
    assert len(list(folder.iterdir())) == 2
