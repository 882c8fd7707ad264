"""The stock tools that the threads are about, on two ranks: Lightning's strategies, torch's wrappers and DeepSpeed."""

from copy import deepcopy
from datetime import timedelta

import deepspeed
import torch
from lightning.pytorch.callbacks import LambdaCallback
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import softplus
from torch.nn.parallel import DistributedDataParallel
from torchmetrics import MeanMetric

from lit_gans.strategies.processes import limit_waiting
from tests.strategies.acceptance.cells import Cell
from tests.strategies.acceptance.cells import train as train_example
from tests.strategies.own_modules import Own
from tests.strategies.test_own_module import train
from tests.strategies.test_rank_positions import AT, TrainsOneNetworkLess

ANY = "ddp_find_unused_parameters_true"
SHORT = timedelta(seconds=2)


def error_of(train):
    """Returns the message of the error that a training raises."""
    try:
        train()
    except RuntimeError as error:
        return str(error)
    return "none"


def lightnings_example():
    """Lightning's GAN example with Lightning's DDP."""
    return error_of(lambda: train_example(Cell("LightningGAN", ""), devices=2, strategy="ddp"))


def reduced_elements():
    """Returns how many elements Lightning's DDP reduces where gradients accumulate by hand."""
    reduced = []

    def count(state, bucket) -> torch.futures.Future[torch.Tensor]:
        reduced.append(bucket.buffer().numel())
        return allreduce_hook(None, bucket)

    hook = LambdaCallback(on_train_start=lambda trainer, _: trainer.strategy.model.register_comm_hook(None, count))
    train_example(Cell("LightningGAN", "", accumulate=2), devices=2, strategy=ANY, callbacks=[hook])
    return sum(reduced)


class Two(nn.Module):
    """The networks of `Own`, and those of one process."""

    def __init__(self):
        super().__init__()
        own = Own()
        self.generator, self.critic = own.generator, own.critic


def adversarial_steps(generator, critic, in_one):
    """Yields the losses of each iteration, first those of the critic, in one backward or in two, as in the example."""
    random = torch.Generator().manual_seed(5)  # the same batches on each rank, so that averages change nothing
    for _ in range(3):
        real, latents = torch.randn(4, 4, generator=random), torch.randn(4, 3, generator=random)
        fake = generator(latents)
        if in_one:
            scores = critic(torch.cat([real, fake.detach()])).chunk(2)
            yield "critic", [softplus(-scores[0]).mean() + softplus(scores[1]).mean()]
        else:
            yield "critic", (softplus(sign * critic(each)).mean() for sign, each in ((-1, real), (1, fake.detach())))
        yield "generator", [softplus(-critic(fake)).mean()]


def adam(network):
    return torch.optim.Adam(network.parameters(), 1e-2, eps=1e-3)


def alone(in_one):
    """Returns the weights that plain torch trains."""
    both = Two()
    optimizers = {name: adam(network) for name, network in both.named_children()}
    for name, losses in adversarial_steps(both.generator, both.critic, in_one):
        both.get_submodule(name).zero_grad()
        for loss in losses:
            loss.backward()
        optimizers[name].step()
        both.zero_grad()
    return both.state_dict()


def engines_off(stage, in_one=False):
    """Returns how far two DeepSpeed engines, as in DeepSpeed's own example, train from plain torch."""
    both = Two()
    settings = {"train_micro_batch_size_per_gpu": 4, "zero_allow_untested_optimizer": True}
    settings["zero_optimization"] = {"stage": stage}
    engines = {
        name: deepspeed.initialize(model=network, optimizer=adam(network), config=deepcopy(settings))[0]
        for name, network in both.named_children()
    }
    for name, losses in adversarial_steps(engines["generator"], engines["critic"], in_one):
        both.zero_grad()
        for loss in losses:
            engines[name].backward(loss)
        engines[name].step()
    with deepspeed.zero.GatheredParameters(list(both.parameters()), enabled=stage == 3):
        return max((both.state_dict()[name] - value).abs().max().item() for name, value in alone(in_one).items())


def penalty(critic, images):
    (gradient,) = torch.autograd.grad(critic(images).sum(), images, create_graph=True)
    return (gradient.norm(dim=1) - 1).square().mean()


def penalized_by_ddp():
    """Returns a gradient of a penalty through torch's DDP, of this rank's images."""
    torch.manual_seed(distributed.get_rank())
    critic = Own().critic
    penalty(DistributedDataParallel(critic), torch.randn(4, 4, requires_grad=True) + distributed.get_rank()).backward()
    return critic[0].weight.grad


def penalized_by_fsdp():
    """A penalty on a network that torch's FSDP2 shards."""
    critic = fully_shard(Own().critic, mesh=init_device_mesh("cpu", (2,)))
    return error_of(lambda: penalty(critic, torch.randn(4, 4, requires_grad=True)).backward())


def batch_norm_twice():
    """Two forwards with batch norm in one DDP before one backward."""
    replica = DistributedDataParallel(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5)))
    return error_of(lambda: (replica(torch.randn(4, 4)) - replica(torch.randn(4, 4))).square().mean().backward())


def first_frozen():
    """Returns the gradients of FSDP2 with a precision policy, where the first forward ran frozen and where not."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    inputs = torch.linspace(-1, 1, 16).view(4, 4) * (1 + distributed.get_rank())
    gradients = []
    for frozen in (True, False):
        critic = fully_shard(Own().critic, mesh=init_device_mesh("cpu", (2,)), mp_policy=policy)
        critic.requires_grad_(not frozen)
        critic(inputs)
        critic.requires_grad_(True)
        critic(inputs).square().mean().backward()
        gradients.append(critic[0].weight.grad.full_tensor())
    return gradients


def computed_alone():
    """A metric that only the first rank computes."""
    metric = MeanMetric(process_group=distributed.new_group(timeout=SHORT))
    metric.update(1.0)
    store = distributed.distributed_c10d._get_default_store()
    if distributed.get_rank() > 0:
        store.wait(["given up"])
        return "waited"
    found = error_of(metric.compute)
    store.set("given up", "")
    return found


def disagreeing():
    """Ranks that disagree under Lightning's DDP, and wait two seconds instead of half an hour."""

    def limit(trainer, module, batch, batch_idx):
        if batch_idx == AT:
            limit_waiting(SHORT)

    callbacks = [LambdaCallback(on_train_batch_start=limit)]
    return error_of(lambda: train(TrainsOneNetworkLess, devices=2, strategy=ANY, callbacks=callbacks))


def find():
    """Returns by row what a rank found; the group of all ranks is of no use after the last one."""
    torch.use_deterministic_algorithms(False)  # DeepSpeed's own buckets have 2 GB, which NaN would fill
    return {
        1: lightnings_example(),
        4: [engines_off(2), engines_off(3)],
        5: engines_off(3, in_one=True),
        14: batch_norm_twice(),
        15: penalized_by_ddp(),
        16: penalized_by_fsdp(),
        18: first_frozen(),
        19: computed_alone(),
        22: reduced_elements(),
        20: disagreeing(),
    }
