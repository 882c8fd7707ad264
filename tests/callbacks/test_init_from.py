import pytest
import torch

from lit_gans.callbacks import EMA, InitFrom
from lit_gans.errors import RefusedInput


def test_a_new_run_begins_with_the_trained_networks_and_nothing_else(tiny_gan, random_images, fit, tmp_path):
    first = tiny_gan(seed=1)
    trainer = fit(first, random_images(), max_steps=2, callbacks=[EMA()])
    path = tmp_path / "some.ckpt"
    trainer.save_checkpoint(path)
    second = tiny_gan(seed=2)
    started = []
    second.on_train_start = lambda: (
        started.append({n: v.clone() for n, v in second.state_dict().items()}) or type(second).on_train_start(second)
    )
    trainer = fit(second, random_images(), max_steps=1, callbacks=[InitFrom(str(path)), EMA()])
    torch.testing.assert_close(started[0], dict(first.state_dict()), rtol=0, atol=0)
    assert trainer.global_step == 1
    with pytest.raises(RefusedInput, match="another architecture"):
        fit(tiny_gan(generator_width=8), random_images(), max_steps=1, callbacks=[InitFrom(str(path))])
