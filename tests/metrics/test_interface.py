"""What torchmetrics' users do with a metric works with every score."""

import pickle

import matplotlib.pyplot as plt
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader
from torchmetrics import Metric, MetricCollection
from torchmetrics.wrappers import FeatureShare

from lit_gans import metrics
from lit_gans.metrics.scores.classes import LabeledScore
from tests.metrics.cells import Pixels, all_scores, images

REAL, FAKE = images(100, 0), images(61, 1)
SCORES = {
    **all_scores(),
    "intra_fid": metrics.IntraFID(num_classes=4),
    "class_accuracy": metrics.ClassAccuracy(),
}


def labels_of(batch):
    return torch.arange(len(batch)) % 4


def make(name):
    """Makes a score with an extractor."""
    return {
        **all_scores(Pixels()),
        "intra_fid": metrics.IntraFID(Pixels(), num_classes=4),
        "class_accuracy": metrics.ClassAccuracy(Pixels()),
    }[name]


def add(score, num_real=100, num_fake=61):
    for real, given in ((True, REAL[:num_real]), (False, FAKE[:num_fake])):
        for batch in given.split(40) if len(given) else ():
            more = {"labels": labels_of(batch)} if isinstance(score, LabeledScore) else {}
            score.update(batch, real=real, **more)
    return score


def same(one, other):
    torch.testing.assert_close(one, other, rtol=0, atol=0)
    return True


def names(score):
    """Returns the name of a score in the table."""
    return next(name for name, other in SCORES.items() if type(other) is type(score))


@pytest.fixture(params=SCORES)
def score(request):
    return add(make(request.param))


def test_a_score_states_what_its_values_are(score):
    assert isinstance(score, Metric)
    assert score.higher_is_better in (True, False)
    assert score.is_differentiable is False
    assert score.full_state_update is False
    assert score.plot_lower_bound is not None
    assert score.named(score.compute()).keys() == score.directions.keys()
    assert ("max" in score.directions.values()) == score.higher_is_better


def test_a_score_can_be_plotted(score):
    for given in (None, [score.compute(), score.compute()]):
        figure, axis = score.plot(given)
        assert axis.has_data()
        low, high = axis.get_ylim()
        first = next(iter(score.named(score.compute()).values()))
        assert low <= first <= high, "a value is not cut off"
        plt.close(figure)


def test_a_score_begins_anew_after_a_reset(score):
    value = score.compute()
    score.reset()
    assert score.update_count == 0
    same(add(score).compute(), value)


def test_a_score_pickles_copies_and_moves_with_its_states(score):
    value = score.named(score.compute())
    others = (pickle.loads(pickle.dumps(score)), score.clone(), score.clone().to("cpu"), score.clone().double())
    add(score, 0, 21)
    for other in others:
        assert other.named(other.compute()) == value
        assert other.update_count == score.update_count - 1
        same(add(other, 0, 21).compute(), score.compute())
    assert score.named(score.compute()) != value or isinstance(score, metrics.ClassCoverage)


def test_forward_adds_images_and_gives_the_value_of_a_batch_where_a_batch_has_one(score):
    value, batch = score.named(score.compute()), FAKE[:21]
    more = {"labels": labels_of(batch)} if isinstance(score, LabeledScore) else {}
    alone = score.clone()
    alone.reset()
    alone.update(batch, **more)
    given = score(batch, **more)
    if score.real_states():
        assert given is None, "a batch of generated images alone cannot be compared"
    else:
        same(given, alone.compute())
    assert score.named(score.compute()) != value or isinstance(score, metrics.ClassCoverage)
    same(score.compute(), add(add(make(names(score))), 0, 21).compute())


def test_a_state_dict_brings_all_states(score):
    assert not score.state_dict(), "not in checkpoints of a module that holds it"
    score.persistent(True)
    other = score.clone()
    other.reset()
    other.load_state_dict(score.state_dict())
    add(other, 0, 3), add(score, 0, 3)
    same(other.compute(), score.compute())


def test_a_collection_gives_what_each_score_gives():
    scores = {name: make(name) for name in SCORES}
    expected = {name: add(make(name)).compute() for name in SCORES}
    together = MetricCollection(scores)
    for real, given in ((True, REAL), (False, FAKE)):
        for batch in given.split(40):
            together.update(batch, real=real, labels=labels_of(batch))
    found = together.compute()
    flat = {}
    for name, value in expected.items():
        flat |= value if isinstance(value, dict) else {name: value}
    assert found.keys() == flat.keys()
    for name, value in flat.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-9)


def test_a_collection_plots_what_the_guide_says():
    def collected(*chosen):
        collection = MetricCollection({name: make(name) for name in chosen})
        for real, given in ((True, REAL), (False, FAKE)):
            collection.update(given, real=real)
        return collection

    assert len(collected("fid", "kid", "inception_score").plot()) == 3
    named = collected("fid", "prdc")
    with pytest.raises(KeyError, match="prdc"):  # torchmetrics looks for one value; the guide can go once it does not
        named.plot()
    _, axis = named.plot(together=True)
    assert axis.has_data()
    assert [score.plot()[1].has_data() for score in named.values()] == [True, True]
    plt.close("all")


def test_shared_features_are_extracted_once():
    extractor, calls = Pixels(), []
    extractor.register_forward_hook(lambda _, given, __: calls.append(len(given[0])))
    alone = {name: add(score) for name, score in all_scores(Pixels()).items()}
    shared = add(FeatureShare(all_scores(extractor)))
    assert calls == [40, 40, 20, 40, 21]
    for name, score in alone.items():
        same(shared[name].compute(), score.compute())
    same(shared.compute()["fid"], alone["fid"].compute())


def test_torchmetrics_users_give_the_same_arguments_in_the_same_order():
    score = metrics.FrechetInceptionDistance(Pixels(), False, True, (1, 2, 2))
    assert (score.reset_real_features, score.normalize) == (False, True)
    assert issubclass(metrics.ModeCoverage, Metric)
    assert issubclass(metrics.PairedL1, Metric)


class Validated(LightningModule):
    """Logs a score of several values, as the guide says."""

    def __init__(self, score):
        super().__init__()
        self.score = score

    def validation_step(self, batch, _):
        self.score.update(batch, real=True)
        self.score.update(batch // 2, real=False)

    def on_validation_epoch_end(self):
        self.log_dict(self.score.named(self.score.compute()))
        self.score.reset()


@pytest.mark.filterwarnings("ignore:.*num_workers")
@pytest.mark.parametrize("name", ["inception_score", "kid", "prdc"])
def test_scores_of_several_values_are_logged_in_a_module(name):
    score = make(name)
    trainer = Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    (found,) = trainer.validate(Validated(score), DataLoader(REAL, batch_size=40), verbose=False)
    for real, given in ((True, REAL), (False, REAL // 2)):
        score.update(given, real=real)
    assert found == pytest.approx(score.named(score.compute()), rel=1e-6)
