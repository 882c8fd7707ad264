"""The page on several optimizers: its scripts train on two ranks; who breaks a rule gets the error that it shows."""

import re
import runpy
import sys

import pytest
import torch
from torch.utils.data import DataLoader

from tests.docs.blocks import ROOT, blocks

from . import ranks
from .own_modules import Tied

PAGE = ROOT / "docs/guides/several_optimizers.md"
SCRIPTS = {block.file: block.source for block in blocks(PAGE) if block.file}
RULES = [part for part in re.split(r"^###? ", PAGE.read_text(), flags=re.M) if re.match(r"\d\.", part)]


def examples(rule):
    """Returns the wrong and the right code of a rule, and the errors: a strategy, and what it says."""
    found = re.findall(r"^```(\w+)\n(.*?)^```", rule, flags=re.M | re.S)
    wrong, right, *_ = (code for language, code in found if language == "python")
    return wrong, right, [text.strip().split(": ", 1) for language, text in found if language == "text"]


def fit(code, strategy):
    """Trains the class that some code defines, on data that differ between the ranks, and returns its weights."""
    names = {}
    exec(code, names)
    torch.manual_seed(0)
    module = names.get("Wrong", names.get("Right"))()
    trainer = ranks.quiet_trainer(strategy=strategy, devices=2, max_epochs=1)
    data = [torch.randn(8, 2) + 2 - 3 * trainer.global_rank for _ in range(3)]
    trainer.fit(module, DataLoader(data, batch_size=None))
    return dict(trainer.strategy.lightning_module_state_dict())


def breaks(code, strategy, folder):
    """Prints the error of a training."""
    sys.path.insert(0, folder)
    try:
        fit(code, strategy)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        raise


def keeps(folder):
    """Returns the weights that each rule's right code trains under the strategies of its errors."""
    sys.path.insert(0, folder)
    return [
        [fit(right, strategy) for strategy in {name for name, _ in errors}] for _, right, errors in map(examples, RULES)
    ]


def runs(folder):
    """Runs each script as it is, and returns its strategy and number of steps."""
    trainers = {name: runpy.run_path(f"{folder}/{name}", run_name="__main__")["trainer"] for name in SCRIPTS}
    return {name: (type(trainer.strategy).__name__, trainer.global_step) for name, trainer in trainers.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    for name, source in SCRIPTS.items():
        (folder / name).write_text(source)
    return folder


def test_there_are_three_scripts_and_five_rules():
    assert [*SCRIPTS] == ["train_ddp.py", "train_fsdp.py", "train_deepspeed.py"]
    assert len(RULES) == 5


@pytest.mark.parametrize("number", range(5))
def test_who_breaks_a_rule_gets_the_error_that_the_page_shows(folder, number):
    wrong, _, errors = examples(RULES[number])
    assert errors
    for strategy, shown in errors:
        place = folder / f"{number}_{strategy}"
        place.mkdir()
        variables = ranks.environments(2)
        codes, printed, _ = ranks.start(
            f"{__name__}.breaks", place, variables, 10, code=wrong, strategy=strategy, folder=str(folder)
        )
        assert any(codes)
        assert any(" ".join(shown.split()) in " ".join(text.split()) for text in printed), "\n".join(printed)


def test_who_keeps_them_trains_the_same_on_both_ranks(folder):
    one, other = ranks.run(f"{__name__}.keeps", folder, folder=str(folder))
    for rule in zip(one, other, strict=True):
        for weights in zip(*rule, strict=True):
            torch.testing.assert_close(*weights, rtol=0, atol=0)


def test_the_scripts_train(folder):
    for found in ranks.run(f"{__name__}.runs", folder, folder=str(folder)):
        assert found == {
            "train_ddp.py": ("NetworkDDP", 64),
            "train_fsdp.py": ("NetworkFSDP", 38),
            "train_deepspeed.py": ("NetworkDeepSpeed", 16),
        }


STOCK = "ddp_find_unused_parameters_true"
NAMES = ("network_ddp", "network_fsdp", "network_deepspeed_stage_2")


def continued(folder):
    """Trains an epoch with Lightning's strategy, and another one from its checkpoint under each; returns weights."""
    path = f"{folder}/stock.ckpt"
    stock = ranks.quiet_trainer(strategy=STOCK, devices=2, max_epochs=1)
    stock.fit(Tied())
    stock.save_checkpoint(path)
    found = {}
    for name in (STOCK, *NAMES):
        trainer = ranks.quiet_trainer(strategy=name, devices=2, max_epochs=2)
        trainer.fit(Tied(), ckpt_path=path, weights_only=True)
        found[name] = dict(trainer.strategy.lightning_module_state_dict())
    return found


def test_each_name_continues_a_checkpoint_of_lightnings_strategy(folder):
    for weights in ranks.run(f"{__name__}.continued", folder, folder=str(folder)):
        for name in NAMES:
            torch.testing.assert_close(weights[name], weights[STOCK], rtol=0, atol=1e-6)
