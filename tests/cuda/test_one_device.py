"""Each strategy on one device, over nccl on CUDA, trains as no strategy does."""

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback

from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.fsdp import NetworkFSDP
from lit_gans.training.optim import OptimizerConfig

PLAIN = dict.fromkeys(("generator_optimizer", "discriminator_optimizer"), OptimizerConfig("SGD", lr=1e-3))


def strategy_named(name):
    if name == "deepspeed":
        pytest.importorskip("deepspeed")
        from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed

        return NetworkDeepSpeed(stage=2)
    return {"ddp": NetworkDDP, "fsdp": NetworkFSDP}[name]()


PAIRS = [(name, gan) for name in ("ddp", "fsdp") for gan in ("d2gan", "wgan_gp")]
NETWORKS = {"wgan_gp": {"network": "dcgan"}}  # as in the parity of ranks


# DeepSpeed keeps the process group of its first training, so that one test of it is possible in a process
@pytest.mark.parametrize(("name", "gan"), [*PAIRS, ("deepspeed", "d2gan")])
def test_a_strategy_changes_nothing(tiny_gan, random_images, heavy_device, train, monkeypatch, name, gan):
    if heavy_device.type == "cpu":
        monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    states, seen = [], set()
    note = LambdaCallback(on_train_start=lambda *_: seen.add(torch.distributed.get_backend()))
    for strategy in (None, strategy_named(name)):
        module = tiny_gan(gan, n_critic=2, **NETWORKS.get(gan, {}), **PLAIN)
        arguments = {"strategy": strategy, "callbacks": [note]} if strategy else {}
        trainer = train(module, random_images(batch_size=4), heavy_device, 3, **arguments)
        state = strategy.lightning_module_state_dict() if strategy else module.state_dict()
        states.append({key: value.detach().cpu() for key, value in state.items()})
        if strategy:
            assert trainer.strategy.root_device.type == heavy_device.type
    torch.testing.assert_close(*states, rtol=1e-5, atol=1e-6)
    assert seen == {"nccl" if heavy_device.type == "cuda" else "gloo"}
