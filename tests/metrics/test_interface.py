"""What torchmetrics' users do with a metric works with every score."""

import pickle

import pytest
import torch
from torch import nn
from torchmetrics import Metric, MetricCollection
from torchmetrics.wrappers import FeatureShare

from lit_gans import metrics
from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.extractors.base import Features
from lit_gans.metrics.scores.classes import LabeledScore
from tests.metrics.cells import ASKED, FAKE, REAL, Pixels, add, all_scores, images

FEW = slice(0, 21)  # generated images that are added to all others
NONE = slice(0, 0)


def same(one, other):
    torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.fixture(params=all_scores())
def score(request):
    return add(all_scores(Pixels())[request.param])


def test_a_score_states_what_its_values_are(score):
    assert isinstance(score, Metric)
    assert score.higher_is_better in (True, False)
    assert score.is_differentiable is False
    with pytest.raises(RefusedInput, match="has no value of a single batch: add images with update"):
        score(FAKE)
    assert score.named(score.compute()).keys() == score.directions.keys()
    assert ("max" in score.directions.values()) == score.higher_is_better


@pytest.mark.parametrize("keep", [False, True])
def test_a_reset_score_keeps_only_the_real_images(score, keep):
    value = score.compute()
    score.reset_real_features = not keep
    score.reset()
    assert score.update_count == 0
    same(add(score, NONE if keep else slice(None)).compute(), value)


def test_a_score_pickles_copies_and_moves_with_its_states(score):
    value = score.named(score.compute())
    others = (pickle.loads(pickle.dumps(score)), score.clone(), score.clone().to("cpu"), score.clone().double())
    add(score, NONE, FEW)
    for other in others:
        assert other.named(other.compute()) == value
        assert other.update_count < score.update_count
        same(add(other, NONE, FEW).compute(), score.compute())
    assert score.named(score.compute()) != value or isinstance(score, metrics.ClassCoverage)


def test_a_state_dict_brings_all_states_through_a_file(score, tmp_path):
    assert not score.state_dict(), "not in checkpoints of a module that holds it"
    score.persistent(True)
    other = score.clone()
    other.reset()
    torch.save(score.state_dict(), tmp_path / "score.pt")
    other.load_state_dict(torch.load(tmp_path / "score.pt", weights_only=True))
    same(add(other, NONE, FEW).compute(), add(score, NONE, FEW).compute())


def test_a_collection_gives_what_each_score_gives():
    together = MetricCollection(all_scores(Pixels()))
    for real, given, labels in ((True, REAL.images, REAL.real_labels()), (False, FAKE, ASKED)):
        for batch, classes in zip(given.split(40), labels.split(40), strict=True):
            together.update(batch, real=real, labels=classes)
    expected = {}
    for name, score in all_scores(Pixels()).items():
        value = add(score).compute()
        expected |= value if isinstance(value, dict) else {name: value}
    found = together.compute()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-9)


def test_shared_features_are_extracted_once():
    def unlabeled(extractor):
        return {name: score for name, score in all_scores(extractor).items() if not isinstance(score, LabeledScore)}

    extractor, calls = Pixels(), []
    extractor.register_forward_hook(lambda _, given, __: calls.append(len(given[0])))
    shared = add(FeatureShare(unlabeled(extractor)))
    assert calls == [10] * 16 + [1]
    for name, score in unlabeled(Pixels()).items():
        same(shared[name].compute(), add(score).compute())


class Flat(nn.Module):
    """Any module: features of images as they are given, with weights."""

    def __init__(self):
        super().__init__()
        self.scale, self.seen = nn.Parameter(torch.tensor(0.1)), []

    def forward(self, images):
        self.seen.append(images)
        return self.scale * images.flatten(1).float()


def test_bytes_floats_extracted_features_and_any_module_are_the_same():
    """Torchmetrics' users give the same arguments in the same order."""
    settings = [(Pixels(),), (Pixels(), True, True, (1, 2, 2)), (), (Flat(), True, False, (1, 2, 2))]
    fids = [metrics.FrechetInceptionDistance(*given) for given in settings]
    for given, real in ((REAL.images, True), (FAKE, False)):
        for fid, batch in zip(fids, (given, given / 255, Features(*Pixels()(given)), given), strict=True):
            fid.update(batch, real)
    expected, floats, extracted, own = (fid.compute().item() for fid in fids)
    assert expected == floats == extracted
    assert own == pytest.approx(expected, rel=1e-6)


def test_states_are_on_the_device_of_the_score_that_learns_its_widths_from_features():
    fid = metrics.FrechetInceptionDistance().to("meta")
    fid.update(Features(torch.empty(3, 4, device="meta"), torch.empty(3, 0, device="meta")), real=True)
    assert {state.device.type for state in fid.metric_state.values()} == {"meta"}


@pytest.mark.parametrize(("normalize", "images"), [(False, images(20, 0)), (True, images(20, 0) / 255)])
def test_a_module_takes_images_as_they_are_given_and_is_no_part_of_what_holds_the_score(normalize, images):
    module, net = nn.Module(), Flat()
    module.fid = metrics.FrechetInceptionDistance(net, normalize=normalize, input_img_size=(3, 2, 2))
    net.seen.clear()
    module.fid.update(images.expand(-1, 3, -1, -1), real=True)
    torch.testing.assert_close(net.seen, [images.expand(-1, 3, -1, -1)], rtol=0, atol=0)
    assert not list(module.parameters())
    assert not module.state_dict()
