"""A small replacement of EDM's network for DMD2, whose pretrained network is a download and needs NVIDIA's code."""

import io
import pickle
from types import ModuleType, SimpleNamespace

import torch
from torch import nn

ARGUMENTS = {
    **{"model_id": "", "sigma_data": 0.5, "sigma_min": 0.002, "sigma_max": 80.0, "rho": 7.0},
    **{"num_train_timesteps": 1000, "min_step_percent": 0.02, "max_step_percent": 0.98},
    **{"gan_classifier": True, "diffusion_gan": True, "diffusion_gan_max_timestep": 1000, "initialie_generator": True},
}  # arguments of DMD2's model; "initialie" is DMD2's spelling


class Denoiser(nn.Module):
    """Small network with the arguments of EDM's network."""

    def __init__(self):
        super().__init__()
        self.model = nn.Module()
        self.model.map_augment = None
        self.begin, self.end = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(768, 3, 1)
        self.condition, self.bottleneck = nn.Linear(11, 8), nn.Conv2d(8, 768, 1)

    def forward(self, images, sigma, labels, return_bottleneck=False):
        condition = self.condition(torch.cat([sigma.reshape(-1, 1).log(), labels], dim=1))
        features = self.bottleneck(torch.tanh(self.begin(images) + condition[:, :, None, None]))
        return features if return_bottleneck else self.end(features)


def replaced_modules():
    """Returns replacements of modules, for `sys.modules`, with which DMD2 builds and loads a `Denoiser`."""
    dnnlib, networks = ModuleType("dnnlib"), ModuleType("main.edm.edm_network")
    pretrained = pickle.dumps({"ema": Denoiser()})
    dnnlib.util = SimpleNamespace(open_url=lambda _: io.BytesIO(pretrained))
    networks.get_edm_network = lambda _: Denoiser()
    return {"dnnlib": dnnlib, networks.__name__: networks}
