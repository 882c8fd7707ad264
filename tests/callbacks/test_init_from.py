from copy import deepcopy

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback

from lit_gans.callbacks import EMA, InitFrom
from lit_gans.common.errors import RefusedInput


def test_a_new_run_begins_with_the_trained_networks_and_nothing_else(tiny_gan, random_images, fit, tmp_path):
    first, second, path = tiny_gan(seed=1), tiny_gan(seed=2), str(tmp_path / "some.ckpt")
    fit(first, random_images(), max_steps=2, callbacks=[EMA(0.5)]).save_checkpoint(path)
    begins = []
    look = LambdaCallback(
        on_train_start=lambda *_: begins.extend(deepcopy([second.state_dict(), second.averaged_generator.state_dict()]))
    )
    trainer = fit(second, random_images(), max_steps=1, callbacks=[InitFrom(path), look, EMA()])
    expected = [first.state_dict(), first.averaged_generator.state_dict()]
    torch.testing.assert_close(begins, expected, rtol=0, atol=0)
    assert trainer.global_step == 1
    for other, why in (
        (tiny_gan(generator_width=8), r"the checkpoint fits only \d% of the generator"),
        (tiny_gan("sngan", network="resnet"), r"0% of the generator \(of a DCGAN, this is a SNGAN\): choose the same"),
    ):
        with pytest.raises(RefusedInput, match=why):
            fit(other, random_images(), max_steps=1, callbacks=[InitFrom(path)])


def test_a_trainer_that_continues_keeps_what_it_has_trained(tiny_gan, random_images, fit, tmp_path):
    path, starts = str(tmp_path / "some.ckpt"), []
    fit(tiny_gan(seed=1), random_images(), max_steps=1).save_checkpoint(path)
    module = tiny_gan(seed=2)
    look = LambdaCallback(on_train_start=lambda trainer, module: starts.append(deepcopy(module.state_dict())))
    trainer = fit(module, random_images(), max_steps=2, callbacks=[InitFrom(path), look])
    trained = deepcopy(module.state_dict())
    trainer.fit_loop.epoch_loop.max_steps = 4
    trainer.fit(module, random_images())
    assert trainer.global_step == 4
    torch.testing.assert_close(starts[1], trained, rtol=0, atol=0)


def test_networks_of_another_size_copy_the_layers_that_fit_and_report_it(
    tiny_gan, random_images, fit, tmp_path, caplog
):
    small, large = tiny_gan("sngan", network="resnet"), tiny_gan("sngan", network="resnet", image_size=32, seed=2)
    trainer = fit(small, random_images(), max_steps=1, callbacks=[EMA()])
    trainer.save_checkpoint(tmp_path / "some.ckpt")
    with caplog.at_level("INFO", "lit_gans"):
        fit(
            large,
            random_images(image_size=32, batch_size=4),
            max_steps=1,
            callbacks=[InitFrom(str(tmp_path / "some.ckpt")), EMA()],
        )
    said = [message for message in caplog.messages if message.startswith("init_from: ")]
    assert [message.split(": ")[1] for message in said] == ["generator", "discriminator"]
    assert any("of the weights; new: " in message for message in said)
    assert large.averaged_generator is not None


@pytest.mark.parametrize(
    ("before", "after", "missing", "freeze", "why"),
    [
        (1, 3, False, 1, "was trained on gray images and cannot distinguish colors"),
        (1, 1, True, 1, "the checkpoint does not have in this size"),
        (3, 1, False, 1, None),
        (1, 1, True, 0, None),  # layers that a module freezes itself may be new
    ],
)
def test_frozen_layers_have_learned_from_such_images(
    tiny_gan, random_images, fit, tmp_path, before, after, missing, freeze, why
):
    first, second = tiny_gan(channels=before), tiny_gan(channels=after, seed=2, freeze_discriminator=freeze)
    if not freeze:
        next(second.discriminator.parameters()).requires_grad_(False)
    path = tmp_path / "some.ckpt"
    fit(first, random_images(channels=before), max_steps=1).save_checkpoint(path)
    frozen = next(name for name, value in second.discriminator.named_parameters() if not value.requires_grad)
    if missing:
        checkpoint = torch.load(path, weights_only=False)
        del checkpoint["state_dict"][f"discriminator.{frozen}"]
        torch.save(checkpoint, path)

    def train():
        fit(second, random_images(channels=after), max_steps=1, callbacks=[InitFrom(str(path))])

    if why is None:
        train()
        return
    with pytest.raises(
        RefusedInput, match=f"freeze_discriminator=1 freezes {frozen} of the discriminator, which {why}"
    ):
        train()


@pytest.mark.parametrize(
    ("setting", "there", "here", "needed"),
    [
        ("asymmetric_padding", True, False, "true"),
        ("groups", 4, None, "4"),
        ("scaling_factor", 0.3, 1.0, "0.3"),
        ("shift_factor", None, 0.1, "null"),
    ],
)
def test_settings_that_belong_to_weights_of_the_same_shapes_must_be_equal(
    tiny_gan, random_images, fit, tmp_path, setting, there, here, needed
):
    first, second = (tiny_gan("autoencoder_kl", **{setting: value}) for value in (there, here))
    path = str(tmp_path / "some.ckpt")
    fit(first, random_images(), max_steps=1).save_checkpoint(path)
    why = rf"its weights need {setting}={needed}, but this model has .*: add model\.{setting}={needed}\."
    with pytest.raises(RefusedInput, match=why):
        InitFrom(path).load(second)
    InitFrom(path).load(tiny_gan("autoencoder_kl", **{setting: there}))
