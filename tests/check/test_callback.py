"""The check as a callback of a Trainer: prints on rank 0, and raises on all ranks if it is asked to."""

import io
from contextlib import redirect_stdout

import pytest
import torch
from lightning.pytorch import Trainer

from lit_gans.check import RankConsistency
from tests.check.loops import train_with_trainer
from tests.strategies import ranks

pytestmark = pytest.mark.ranks


def outcomes():
    """Trains right and wrong modules, and returns for each of them what was printed, and the error or warning."""
    torch.set_num_threads(1)
    found = {}
    for fault, action in ((None, "raise"), ("codebook_of_each_rank", "raise"), ("gradients_summed", "warn")):
        callback, error = RankConsistency(steps=3, on_fault=action), ""
        with redirect_stdout(io.StringIO()) as printed:
            try:
                train_with_trainer(fault, callbacks=[callback])
            except RuntimeError as raised:
                error = str(raised)
        found[fault] = printed.getvalue(), error
    return found


def test_all_ranks_raise_where_rank_0_has_found_faults(tmp_path):
    first, second = ranks.run(f"{__name__}.outcomes", tmp_path)
    assert "lit_gans.check: 2 ranks train one model: 0 faults, 0 notes" in first[None][0]
    assert first[None][1] == second[None][1] == ""
    printed, error = first["codebook_of_each_rank"]
    assert "FAULT buffers_differ" in printed
    assert "Watched: 3 steps of" in printed
    assert "3 steps of Adam of generator" in printed
    assert (
        error == second["codebook_of_each_rank"][1] == "the ranks do not train one model: rank 0 prints 1 faults above"
    )
    assert "FAULT gradients_summed" in first["gradients_summed"][0]
    assert first["gradients_summed"][1] == ""
    assert [printed for printed, _ in second.values()] == ["", "", ""]


@pytest.mark.parametrize("settings", [{"limit_train_batches": 0}, {"max_steps": 0}], ids=str)
def test_a_training_without_iterations_leaves_nothing_behind(tiny_gan, random_images, settings):
    """Lightning then calls neither `on_train_end` nor `on_exception`."""
    before, quiet = torch.autograd.backward, {"logger": False, "enable_checkpointing": False, "accelerator": "cpu"}
    trainer = Trainer(callbacks=[RankConsistency()], **{"max_steps": 2, **settings}, **quiet)
    trainer.fit(tiny_gan(), datamodule=random_images())
    assert torch.autograd.backward is before
