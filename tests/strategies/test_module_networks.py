"""Networks are found from the optimizers: sets of children, nested paths, containers, single parameters."""

from copy import deepcopy

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import nn

from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.base import running_statistics, trained_norms
from lit_gans.strategies.fsdp import _refuse_shared as refuse_shared
from lit_gans.strategies.module_networks import (
    find_networks,
    network_named,
    refuse_unstepped,
    stepped_network,
    trained_network,
)


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.logvar = nn.Parameter(torch.zeros(1))
        self.discriminator, self.perceptual = nn.Linear(2, 1), nn.Linear(2, 2).requires_grad_(False)


class Average(nn.Module):
    def __init__(self, model, copied=True):
        super().__init__()
        self.online = model
        if copied:
            self.average = deepcopy(model).requires_grad_(False)


class Everything(LightningModule):
    """Encoder and decoder in one optimizer with single parameters; discriminators in a container and inside a loss."""

    def __init__(self, copied=True):
        super().__init__()
        encoder = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.ema = Average(encoder, copied)
        self.encoder, self.decoder = encoder, nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.ones(1))
        self.loss = Loss()
        self.teacher = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).requires_grad_(False).eval()
        self.discriminators = nn.ModuleDict({"one": nn.Linear(2, 1), "two": nn.Linear(2, 1)})

    def optimizers_of(self, *groups):
        return [torch.optim.SGD([*dict.fromkeys(p for part in group for p in part)], 0.1) for group in groups]

    def configured(self):
        autoencoder = [each.parameters() for each in (self.encoder, self.decoder)] + [[self.scale, self.loss.logvar]]
        return self.optimizers_of(
            autoencoder, [self.discriminators.parameters()], [self.loss.discriminator.parameters()]
        )


@pytest.mark.parametrize("copied", [True, False])
def test_a_network_is_what_one_optimizer_steps(copied):
    module = Everything(copied)
    networks = find_networks(module.configured(), module)
    refuse_unstepped(networks, module)
    first = networks["encoder+3_others"]
    assert list(networks) == ["encoder+3_others", "discriminators", "loss.discriminator"]
    assert {path: [*root.parameters()] for path, root in first.roots.items()} == {
        "encoder": [*module.encoder.parameters()],
        "decoder": [*module.decoder.parameters()],
    }
    assert first.loose == {"scale": module.scale, "loss.logvar": module.loss.logvar}
    assert [*networks["discriminators"].roots] == ["discriminators.one", "discriminators.two"]
    assert networks["loss.discriminator"].roots == {"loss.discriminator": module.loss.discriminator}


def test_a_backward_names_a_network_by_the_path_of_any_of_its_pieces():
    module = Everything()
    networks = find_networks(module.configured(), module)
    for path in ("encoder", "decoder.weight", "scale", "loss.logvar", "encoder+3_others", "ema.online", "ema"):
        assert network_named(networks, path).name == "encoder+3_others"
    assert network_named(networks, "discriminators.two").name == "discriminators"
    for path, number in (("teacher", "no network"), ("ema.average", "no network"), ("loss", "several networks")):
        with pytest.raises(RefusedInput, match=rf"network='{path}'\) names {number} of the module, which has encoder"):
            network_named(networks, path)


def module_loss(module, *names):
    """Returns the sum of the parameters of some submodules."""
    return sum(parameter.sum() for name in names for parameter in module.get_submodule(name).parameters())


def test_a_backward_trains_the_only_unfrozen_network_that_its_loss_depends_on():
    module = Everything()
    networks = find_networks(module.configured(), module)
    for name in ("encoder", "discriminators", "loss.discriminator"):
        assert trained_network(networks, module_loss(module, name, "teacher")).has(name)
    module.requires_grad_(False)
    module.discriminators.requires_grad_(True)
    assert trained_network(networks, module_loss(module, "encoder", "discriminators")).name == "discriminators"


def test_parameters_that_would_train_wrong_are_refused_by_name():
    module = Everything()
    optimizers = module.configured()
    networks = find_networks(optimizers, module)
    everything, nothing = module_loss(module, "encoder", "discriminators", "loss"), module_loss(module, "teacher")
    for loss, names in ((everything, r"\['encoder.*', 'discriminators', 'loss.disc"), (nothing, r"\[\]")):
        with pytest.raises(RefusedInput, match=f"exactly one network, but the networks {names}"):
            trained_network(networks, loss)
    with pytest.raises(RefusedInput, match="that configure_optimizers did not return"):
        stepped_network(networks, module.configured()[0])
    with pytest.raises(RefusedInput, match=r"no optimizer steps loss\.discriminator\.weight, which requires a grad"):
        refuse_unstepped(find_networks(optimizers[:2], module), module)
    with pytest.raises(RefusedInput, match=r"two optimizers step discriminators\.one\.weight: pass it to only one"):
        find_networks([*optimizers, *module.optimizers_of([module.discriminators["one"].parameters()])], module)
    with pytest.raises(RefusedInput, match=r"an optimizer steps teacher\.0\.weight, which is frozen"):
        find_networks(module.optimizers_of([module.teacher.parameters()]), module)
    with pytest.raises(RefusedInput, match=r"a parameter of shape \(3, 2\) that is not in the module"):
        find_networks(module.optimizers_of([nn.Linear(2, 3).parameters()]), module)


def test_layers_that_two_sharded_modules_share_are_refused():
    module = Everything()

    def refuse():
        networks = find_networks(module.configured(), module)
        refuse_shared(module, {path: root for network in networks.values() for path, root in network.roots.items()})

    refuse()  # the average holds the complete encoder
    module.decoder.weight = module.encoder[0].weight
    with pytest.raises(RefusedInput, match=r"the parameter decoder\.weight belongs to both decoder and encoder"):
        refuse()
    module.decoder = nn.Sequential(nn.Linear(2, 2), module.encoder[0], nn.Linear(2, 2))
    with pytest.raises(RefusedInput, match=r"the layer decoder\.1 belongs to both encoder and decoder"):
        refuse()


def test_statistics_are_averaged_where_an_optimizer_steps():
    module = Everything()
    module.statistics, module.unused = nn.BatchNorm1d(2, affine=False), nn.BatchNorm1d(2, affine=False).eval()
    stepped = [p for network in find_networks(module.configured(), module).values() for p in network.parameters]
    layers = trained_norms(module, stepped)
    assert layers == [module.encoder[1], module.statistics, module.unused]
    found = [id(buffer) for buffer in running_statistics(layers)]
    assert found == [id(buffer) for layer in layers[:2] for buffer in (layer.running_mean, layer.running_var)]
    module.unused.train()
    assert len(running_statistics(layers)) == 6
