"""Several callbacks of one class in a trainer: each keeps its state, or an error says that they conflict."""

import pytest
import torch

from lit_gans.callbacks import EMA, GenerativeMetrics, InitFrom, ModeMetrics, RunCheckpoint, Samples, StopOnPlateau
from lit_gans.checkpoints.locate import verified_iteration
from lit_gans.common.errors import RefusedInput
from lit_gans.metrics import FrechetInceptionDistance, KernelInceptionDistance
from lit_gans.metrics.extractors.digits import DigitsExtractor


class Other(DigitsExtractor):
    name = "other"

    def forward(self, images):
        features, logits = super().forward(images)
        return 3 * features, logits


def metrics(extractor, every_n_steps=2, num_samples=40, **settings):
    settings = {"scores": {"fid": FrechetInceptionDistance()}, **settings}
    return GenerativeMetrics(extractor, every_n_steps, num_samples, 16, **settings)


@pytest.fixture
def train(tiny_gan, random_images, fit):
    def run(max_steps, *callbacks, resume=None):
        module = tiny_gan()
        saves = any(isinstance(each, RunCheckpoint) for each in callbacks)
        trainer = fit(module, random_images(), max_steps, resume, callbacks=list(callbacks), enable_checkpointing=saves)
        return trainer, module

    return run


def both():
    return metrics(Other()), metrics(DigitsExtractor(), every_n_steps=3)


@pytest.mark.runs
def test_metrics_of_two_extractors_resume_each_with_its_state(train, tmp_path):
    whole = both()
    expected, module = train(6, EMA(), *whole)
    train(4, EMA(), *both(), RunCheckpoint(every_n_train_steps=4))
    resumed = both()[::-1]  # in another order
    last = tmp_path / "checkpoints/last.ckpt"
    trainer, again = train(6, EMA(), *resumed, RunCheckpoint(monitor="metric/fid_other"), resume=last)
    torch.testing.assert_close(again.state_dict(), module.state_dict(), rtol=0, atol=0)
    for one, two in zip(whole, resumed[::-1], strict=True):
        assert one.state_dict() == two.state_dict()
    assert whole[0].values["metric/fid_other"] > 2 * whole[1].values["metric/fid_digits"]
    assert trainer.checkpoint_callback.best_value == pytest.approx(whole[0].best["metric/fid_other"][0])
    assert StopOnPlateau(1)._monitor._key(expected) == "metric/fid_other", "auto follows the first of them"


def test_other_settings_of_the_same_scores_load_the_state(train, tmp_path):
    saved, loaded = metrics(DigitsExtractor()), metrics(DigitsExtractor(), seed=5)
    train(2, EMA(), saved, RunCheckpoint())
    train(3, EMA(), loaded, RunCheckpoint(), resume=tmp_path / "checkpoints/last.ckpt")
    assert loaded.first == saved.first


def test_values_on_another_number_of_samples_are_not_compared(train, tmp_path):
    saved, loaded = metrics(DigitsExtractor()), metrics(DigitsExtractor(), num_samples=48)
    train(2, EMA(), saved, RunCheckpoint())
    with pytest.warns(UserWarning, match=r"measured with other settings \(num_fake: 40 and 48\): the best starts anew"):
        train(3, EMA(), loaded, RunCheckpoint(), resume=tmp_path / "checkpoints/last.ckpt")
    best = saved.best["metric/fid_digits"][1]
    assert saved.first
    assert not loaded.first
    assert loaded.best["metric/fid_digits"][1] == 3
    names = {path.name: verified_iteration(path) for path in (tmp_path / "checkpoints").glob("best*")}
    assert names == {"best.ckpt": 3, f"best-{best:08d}.ckpt": best}


def test_values_of_scores_that_are_no_longer_measured_are_dropped(train, tmp_path):
    kid = {"kid": KernelInceptionDistance(subset_size=16, subsets=2)}
    both = metrics(DigitsExtractor(), scores={"fid": FrechetInceptionDistance(), **kid})
    train(2, EMA(), both, RunCheckpoint())
    assert "metric/kid_digits" in both.best
    loaded = metrics(DigitsExtractor())
    trainer, _ = train(3, EMA(), loaded, RunCheckpoint(), resume=tmp_path / "checkpoints/last.ckpt")
    for names in (loaded.values, loaded.first, loaded.best):
        assert [*names] == ["metric/fid_digits"]
    assert "metric/kid_digits" not in trainer.callback_metrics
    assert loaded.first["metric/fid_digits"] == both.first["metric/fid_digits"]
    assert loaded.best_lines() is not None


def test_two_scores_of_one_extractor_may_have_callbacks_of_their_own(train):
    kid = {"kid": KernelInceptionDistance(subset_size=16, subsets=2)}
    callbacks = metrics(DigitsExtractor()), metrics(DigitsExtractor(), 1, scores=kid)
    trainer, _ = train(2, *callbacks)
    assert {"metric/fid_digits", "metric/kid_digits"} <= trainer.callback_metrics.keys()


CONFLICTS = {
    "measure metric/fid_digits": (metrics(DigitsExtractor()), metrics(DigitsExtractor(), num_samples=30)),
    "update the averaged generator": (EMA(0.9), EMA(0.99)),
    "write the same sample grids": (Samples(num=4), Samples(num=9)),
    "write last.ckpt and best.ckpt": (
        RunCheckpoint(monitor="loss/generator"),
        RunCheckpoint(monitor="loss/discriminator"),
    ),
    "initialize the networks": (InitFrom("zoo/dcgan_digits"), InitFrom("zoo/dcgan_digits")),
}


@pytest.mark.parametrize("conflict", CONFLICTS)
def test_what_two_callbacks_cannot_both_do_is_refused(train, conflict, monkeypatch, tmp_path):
    monkeypatch.setattr(InitFrom, "setup", lambda *_, **__: None)
    kind = type(CONFLICTS[conflict][0]).__name__
    with pytest.raises(RefusedInput, match=f"two callbacks, {kind} and {kind}, would both {conflict}"):
        train(1, *CONFLICTS[conflict])
    assert not list(tmp_path.rglob("*.png"))
    assert ModeMetrics.conflict == "", "its keys say it"


@pytest.mark.parametrize("sampling", [Samples(num=4), metrics(DigitsExtractor())])
def test_the_average_is_updated_before_it_is_sampled(train, sampling):
    name = type(sampling).__name__
    with pytest.raises(
        RefusedInput, match=rf"EMA must come before {name}, .*: callbacks=\[EMA\(...\), {name}\(...\)\]"
    ):
        train(1, sampling, EMA())
