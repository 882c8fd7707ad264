import pytest
import torch

from lit_gans.metrics.cache import reference_path
from lit_gans.metrics.evaluator import Evaluation
from lit_gans.metrics.protocol import fingerprint, reference_key
from tests.metrics.cells import SCORES, Pixels, images


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "statistics.safetensors"


def measured(path, batches, scores=SCORES):
    evaluation = Evaluation(Pixels(), torch.device("cpu"), 0, scores)
    evaluation.add_real(batches, path)
    return evaluation.measure([images(61, 1)], 61), evaluation.real_halves()


def never():
    raise AssertionError("the images are read")
    yield


def test_a_second_run_reads_no_image_and_measures_bitwise_the_same(path):
    first = measured(path, images(100, 0).split(16))
    assert measured(path, never()) == first
    assert measured(None, images(100, 0).split(16)) == first


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: data[:-9] + b"?" * 9, lambda _: b""]
)
def test_a_damaged_file_is_made_anew_with_a_warning(path, damage):
    first = measured(path, [images(100, 0)])
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    with pytest.warns(UserWarning, match="are damaged .* computed again"):
        assert measured(path, [images(100, 0)]) == first
    assert path.read_bytes() == whole


def test_a_file_without_the_features_that_are_needed_is_made_anew(path):
    measured(path, [images(100, 0)], SCORES[:1])
    assert measured(path, [images(100, 0)])[0].keys() > {"metric/kid_pixels"}
    measured(path, never(), SCORES)


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path):
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match="cannot be stored"):
        measured(tmp_path / "file/statistics.safetensors", [images(100, 0)])


def test_the_name_depends_on_images_and_extractor_and_not_on_batches(monkeypatch, tmp_path):
    monkeypatch.setenv("LIT_GANS_CACHE", str(tmp_path))

    class Other(Pixels):
        name = "other"

    def place(extractor, batches, scores=SCORES):
        evaluation = Evaluation(extractor, torch.device("cpu"), 0, scores)
        return reference_path(reference_key(evaluation, fingerprint(batches)[0]))

    here = place(Pixels(), [images(100, 0)])
    assert here.is_relative_to(tmp_path)
    assert place(Pixels(), images(100, 0).split(7)) == here
    others = [
        place(Pixels(), [images(100, 1)]),
        place(Pixels(), [images(99, 0)]),
        place(Pixels(), [images(100, 0).reshape(100, 1, 1, 4)]),
        place(Other(), [images(100, 0)]),
        place(Pixels(), [images(100, 0)], SCORES[:1]),
    ]
    assert len({here, *others}) == 6


def test_another_code_of_a_user_s_module_has_statistics_of_its_own():
    class Scaled(Pixels):
        num_logits = None

        def __init__(self, scale):
            super().__init__()
            self.scale = scale  # no weight, so that the digest of the weights does not tell

        def forward(self, images):
            pixels, logits = super().forward(images)
            return self.scale * pixels, logits

    def place(scale):
        evaluation = Evaluation(Scaled(scale), torch.device("cpu"), 0, SCORES)
        evaluation.leave_out(100, 100, (1, 2, 2))
        return reference_path(reference_key(evaluation, "0"))

    assert place(1.0) == place(1.0)
    assert place(1.0) != place(2.0)
