"""A device without enough memory: one sentence with what to lower, and exit code 1."""

import torch
from PIL import Image

from lit_gans.models.dcgan import DCGAN


def without_memory(*_):
    raise torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.18 GiB of which 8.00 MiB is"
        " free."
    )


def test_out_of_memory_says_what_to_lower(command, device, monkeypatch, request, tmp_path):
    width = 8
    if device.type == "cuda":
        request.addfinalizer(lambda: torch.cuda.set_per_process_memory_fraction(1.0))
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(600 * 2**20 / total)
        width = 256  # with gradients and Adam's averages, the networks take more than that
    else:
        monkeypatch.setattr(DCGAN, "discriminator_losses", without_memory)
    (tmp_path / "pictures").mkdir()
    for index in range(8):
        Image.new("RGB", (64, 64), (index, 0, 0)).save(tmp_path / f"pictures/{index}.png")
    settings = ["model=dcgan", f"model.generator_width={width}", f"model.discriminator_width={width}", "metrics=none"]
    data = ["data=folder", "data.root=pictures", "data.batch_size=8", "data.cache=cache"]
    trainer = [f"trainer.accelerator={device.type}", "trainer.max_steps=3", "trainer.log_every_n_steps=1"]
    code, _, err = command("train", *settings, *data, *trainer)
    assert code == 1
    assert "the device ran out of memory (tried to allocate" in err
    for remedy in ("data.batch_size", "model.accumulate_gradients", "precision=bf16"):
        assert remedy in err
    assert "Traceback" not in err
