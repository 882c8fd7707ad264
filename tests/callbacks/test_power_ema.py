"""Power-function averages: the closed form, ema-pytorch on the same steps in float64, and resumed runs."""

import pytest
import torch
from ema_pytorch.post_hoc_ema import KarrasEMA, PostHocEMA, sigma_rel_to_gamma, solve_weights
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import LambdaCallback
from safetensors.torch import load_file, save_file

from lit_gans.callbacks import EMA, PowerEMA
from lit_gans.callbacks.power_ema import combination, exponent, load_average, snapshots_in
from lit_gans.common.errors import RefusedInput
from tests.tiny import quiet_trainer

WIDTHS = (0.05, 0.1)
EXACT = {"rtol": 1e-11, "atol": 1e-12}


class Reference(Callback):
    """Averages with ema-pytorch, which counts from the second iteration, and stores snapshots every n iterations."""

    def __init__(self, folder, every):
        self.folder, self.every, self.weights = folder, every, []

    def on_train_batch_end(self, trainer, pl_module, *_):
        generator, step = pl_module.generator, trainer.global_step
        self.weights.append({name: value.detach().clone() for name, value in generator.named_parameters()})
        if step == 1:
            settings = {"checkpoint_every_num_steps": "manual", "checkpoint_dtype": torch.float64, "update_every": 1}
            self.post_hoc = PostHocEMA(generator, sigma_rels=WIDTHS, checkpoint_folder=self.folder, **settings)
            self.direct = KarrasEMA(generator, sigma_rel=0.15, update_every=1)
            for average in (*self.post_hoc.ema_models, self.direct):
                average.initted.fill_(True)
        else:
            self.post_hoc.update()
            self.direct.update()
        if step % self.every == 0:
            for average in self.post_hoc.ema_models:
                average.step += 1
            self.post_hoc.checkpoint()  # names the files by the iteration
            for average in self.post_hoc.ema_models:
                average.step -= 1


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of 24 iterations in float64 with 12 snapshots, its averages, and those of ema-pytorch."""
    from tests.tiny import fit, random_images, tiny_gan

    folder = tmp_path_factory.mktemp("trained")
    module, reference = tiny_gan(), Reference(folder / "reference", every=2)
    average = PowerEMA(WIDTHS, num=12)
    callbacks = [average, reference, EMA()]
    fit(module, random_images(), 24, callbacks=callbacks, precision="64-true", default_root_dir=folder)
    return folder, module, average, reference


def test_the_weights_of_a_profile_are_integrals_of_the_power_function(trained):
    _, _, average, reference = trained
    edges = torch.arange(25, dtype=torch.float64) / 24
    for width, found in zip(WIDTHS, average.state_dict()["averages"], strict=True):
        shares = (edges ** (exponent(width) + 1)).diff()
        expected = {
            name: sum(share * weights[name] for share, weights in zip(shares, reference.weights, strict=True))
            for name in found
        }
        torch.testing.assert_close(found, expected, **EXACT)


def test_averages_equal_those_of_ema_pytorch(trained):
    _, _, average, reference = trained
    for theirs, ours in zip(reference.post_hoc.ema_models, average.state_dict()["averages"], strict=True):
        torch.testing.assert_close(ours, dict(theirs.ema_model.named_parameters()), **EXACT)


@pytest.mark.parametrize("width", [0.06, 0.1, 0.13])
def test_another_width_equals_that_of_ema_pytorch(trained, width, tmp_path):
    folder, module, _, reference = trained
    assert load_average(module, snapshots_in(folder / "averages"), width) < 0.02
    theirs = reference.post_hoc.synthesize_ema_model(sigma_rel=width).ema_model
    expected = dict(theirs.named_parameters())
    # solving the same equations differently changes the coefficients by their condition number times 1e-16
    torch.testing.assert_close(dict(module.averaged_generator.named_parameters()), expected, rtol=1e-9, atol=1e-11)
    trained_buffers = dict(module.generator.named_buffers())
    torch.testing.assert_close(dict(module.averaged_generator.named_buffers()), trained_buffers, rtol=0, atol=0)


def flat(tensors):
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def test_a_reconstructed_width_is_close_to_the_average_tracked_during_training(trained):
    folder, module, _, reference = trained
    error, gamma = load_average(module, snapshots_in(folder / "averages"), 0.15), exponent(0.15)
    assert error < 0.016
    direct = flat(reference.direct.ema_model.parameters())
    difference = (flat(module.averaged_generator.parameters()) - direct).norm()
    # inequality of Cauchy and Schwarz, with the L2 norm of the requested profile
    norm = (gamma + 1) / (24 * (2 * gamma + 1)) ** 0.5
    weights = torch.stack([flat(weights.values()) for weights in reference.weights])
    assert difference < error * norm * weights.norm()
    assert difference < 0.005 * direct.norm()


@pytest.mark.parametrize("width", [0.01, 0.05, 0.1, 0.28])
def test_an_exponent_gives_its_width_in_closed_form(width):
    gamma = exponent(width)
    assert ((gamma + 1) / ((gamma + 2) ** 2 * (gamma + 3))) ** 0.5 == pytest.approx(width, rel=1e-12)
    assert gamma == pytest.approx(sigma_rel_to_gamma(width), rel=1e-12)


def test_coefficients_equal_those_of_ema_pytorch():
    times, gammas = [100, 100, 250, 250, 400, 400], [exponent(width) for width in WIDTHS] * 3
    found, _ = combination(times, gammas, 400, exponent(0.08))
    arguments = [torch.tensor(value, dtype=torch.float64) for value in (times, gammas, [400], [exponent(0.08)])]
    torch.testing.assert_close(torch.from_numpy(found), solve_weights(*arguments).squeeze(1), rtol=1e-9, atol=1e-12)


def test_the_error_of_a_profile_is_its_distance_on_a_fine_grid():
    times, gammas, gamma = [300, 300, 1000, 1000], [exponent(width) for width in WIDTHS] * 2, exponent(0.2)
    found, error = combination(times, gammas, 1000, gamma)
    moments = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200
    profiles = [(g + 1) / t * (moments / t) ** g * (moments < t) for t, g in zip(times, gammas, strict=True)]
    target = (gamma + 1) / 1000 * (moments / 1000) ** gamma
    difference = target - sum(share * profile for share, profile in zip(found.tolist(), profiles, strict=True))
    assert error == pytest.approx(float(difference.norm() / target.norm()), rel=1e-4)
    assert combination(times, gammas, 1000, gammas[1])[1] == pytest.approx(0, abs=1e-7)


def snapshots(folder):
    return {path.name: load_file(path) for path in sorted((folder / "averages").iterdir())}


def test_a_resumed_run_has_the_snapshots_of_an_uninterrupted_run(tiny_gan, random_images, fit, tmp_path):
    def run(folder, steps=8, resume=None):
        module, root = tiny_gan(), {"default_root_dir": tmp_path / folder}
        return fit(module, random_images(), steps, resume, callbacks=[PowerEMA(num=4)], **root)

    run("whole")
    run("stopped", steps=4).save_checkpoint(tmp_path / "stopped/checkpoints/last.ckpt")
    last = sorted((tmp_path / "whole/averages").iterdir())[-1]
    later = tmp_path / "stopped/averages/000007.safetensors"  # of iterations that were lost
    later.write_bytes(last.read_bytes())
    run("stopped", resume=tmp_path / "stopped/checkpoints/last.ckpt")
    whole, resumed = snapshots(tmp_path / "whole"), snapshots(tmp_path / "stopped")
    assert [*whole] == [f"{step:06d}.safetensors" for step in (2, 4, 6, 8)]
    # with num=4, the first four iterations had a snapshot each
    assert [*resumed] == [f"{step:06d}.safetensors" for step in (1, 2, 3, 4, 6, 8)]
    torch.testing.assert_close({name: resumed[name] for name in whole}, whole, rtol=0, atol=0)
    run("whole", steps=2)  # a new run in the same folder
    assert [*snapshots(tmp_path / "whole")] == ["000001.safetensors", "000002.safetensors"]
    torch.testing.assert_close({p.name: load_file(p) for p in (tmp_path / "whole/averages-1").iterdir()}, whole)


def test_a_trainer_continues_its_averages_after_an_exception(tiny_gan, random_images, fit, tmp_path):
    def ends(trainer, *_):
        if trainer.global_step == 2 and not ended:
            ended.append(True)
            raise MemoryError("once")

    ended, average, module = [], PowerEMA(num=4), tiny_gan()
    callbacks = [average, LambdaCallback(on_train_batch_start=ends)]
    trainer = quiet_trainer(max_steps=4, max_epochs=-1, callbacks=callbacks, default_root_dir=tmp_path)
    with pytest.raises(MemoryError):
        trainer.fit(module, random_images())
    trainer.fit(module, random_images())
    assert [snapshot.iteration for snapshot in snapshots_in(PowerEMA.folder(trainer))] == [1, 2, 3, 4]


def test_what_cannot_be_averaged_is_refused_at_the_start(tiny_gan, random_images, fit, tmp_path):
    path = tmp_path / "checkpoints/last.ckpt"
    fit(tiny_gan(), random_images(), 2, callbacks=[PowerEMA((0.05, 0.2))]).save_checkpoint(path)
    with pytest.raises(RefusedInput, match=r"widths=\[0.05, 0.1\] of PowerEMA .*: use widths=\[0.05, 0.2\]"):
        fit(tiny_gan(), random_images(), 4, path, callbacks=[PowerEMA()])
    fit(tiny_gan(), random_images(), 2).save_checkpoint(path)
    with pytest.raises(RefusedInput, match="the checkpoint of iteration 2 has no such averages: remove PowerEMA"):
        fit(tiny_gan(), random_images(), 4, path, callbacks=[PowerEMA()])
    with pytest.raises(RefusedInput, match="which has no end: set max_steps"):
        fit(tiny_gan(), random_images(), -1, callbacks=[PowerEMA()])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"widths": ()}, r"widths=\[\]: expected one or more different widths"),
        ({"widths": (0.1, 0.1)}, r"widths=\[0.1, 0.1\]: expected one or more different"),
        ({"widths": (0.1, 0.3)}, "width=0.3 must be greater than 0 and less than 0.2887"),
        ({"widths": (0.0,)}, "width=0.0 must be greater than 0"),
        ({"num": 0}, "num=0 must be at least 1"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(RefusedInput, match=message):
        PowerEMA(**settings)


def test_wrong_snapshots(trained, tmp_path):
    folder, module, _, _ = trained
    first = snapshots_in(folder / "averages")[:2]
    with pytest.raises(RefusedInput, match=r"width=0.02: 2 snapshots of widths 0.05, 0.1 .* an error of \d+\.\d%"):
        load_average(module, first, 0.02)
    path = tmp_path / "000004.safetensors"
    whole = load_file(first[1].path)
    metadata = {"iteration": "4", "widths": "[0.05, 0.1]"}
    one, *_ = (name for name in whole if name.startswith("0."))
    for tensors in (
        {name: value for name, value in whole.items() if name != one},
        whole | {"1.more": torch.zeros(1)},
        whole | {one: torch.zeros(7)},
    ):
        save_file(tensors, path, metadata)
        with pytest.raises(RefusedInput, match=r"000004\.safetensors is from a generator with other tensors"):
            load_average(module, snapshots_in(tmp_path), 0.1)
    path.write_bytes(first[1].path.read_bytes()[:100])
    with pytest.raises(RefusedInput, match=r"000004\.safetensors cannot be read as a snapshot of PowerEMA"):
        snapshots_in(tmp_path)
    save_file(whole, path)
    with pytest.raises(RefusedInput, match=r"000004\.safetensors cannot be read as a snapshot of PowerEMA"):
        snapshots_in(tmp_path)
