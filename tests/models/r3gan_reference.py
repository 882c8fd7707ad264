"""`python -m tests.models.r3gan_reference FOLDER` writes what the authors' code computes; `test_r3gan.py` compares.

FOLDER is a clone of github.com/brownvc/R3GAN at commit 19a7ddf; on a CPU its operators fall back to plain torch. Both
sides start from the same numbers, a formula of their position rather than random ones: weights, latents and images.
The steps are those of `AdversarialTraining`, with Adam and the schedules set as in `training/training_loop.py`, all in
float64. Only numbers are stored, none of the code.
"""

import json
import sys
from pathlib import Path

import torch

from lit_gans.models.r3gan import R3GAN
from lit_gans.training.optim import OptimizerConfig
from lit_gans.training.schedules import CosineSchedule

RECORD = Path(__file__).with_name("r3gan_reference.json")
STEPS, BATCH = 3, 4
RATE, BETA, GAMMA, HALF_LIFE = (2e-3, 5e-4), (0.9, 0.99), (1000.0, 100.0), (0.0, 40.0)  # from, to
OVER = 20  # images
SMALL = {"image_size": 64, "channels": 3, "latent_dim": 6, "group_width": 4, "channels_last": False}
WIDTHS = [16, 16, 16, 16, 8]  # what a width of 8 means at 64 pixels
PRESETS = {  # image size, finest width, group width, classes, size up to which all widths are equal
    "cifar10": (32, None, 8, 10, 32),
    "ffhq64": (64, None, 8, 0, 32),
    "ffhq256": (256, None, 8, 0, 32),
    "imagenet32": (32, 1536, 16, 1000, 32),
    "imagenet64": (64, 1536, 16, 1000, 64),
}


def pattern(*shape, shift):
    """Returns numbers in [-1, 1] that every platform computes alike: float32 values in float64."""
    count = torch.Size(shape).numel()
    return torch.sin(torch.arange(count, dtype=torch.float64) * 0.7391 + shift).float().double().view(shape)


def images(step):
    """Returns the real images of a step and their labels."""
    return pattern(BATCH, 3, 64, 64, shift=10.0 + step), torch.arange(BATCH) + step


def latents(turn):
    """Returns the latents of a turn: the discriminator's and the generator's alternate."""
    return 2 * pattern(BATCH, 6, shift=20.0 + turn)


def module(num_classes):
    """Returns a small R3GAN with known weights."""
    schedule = CosineSchedule(1.0, RATE[1] / RATE[0], over=OVER, unit="images")
    adam = OptimizerConfig(
        "Adam", lr=RATE[0], betas=(0.0, CosineSchedule(*BETA, over=OVER, unit="images")), schedule=schedule
    )
    gamma = CosineSchedule(*GAMMA, over=OVER, unit="images")
    widths = {"generator_width": 8, "discriminator_width": 8}
    optimizers = {"generator_optimizer": adam, "discriminator_optimizer": adam}
    made = R3GAN(**SMALL, **widths, **optimizers, r1_gamma=gamma, r2_gamma=gamma, num_classes=num_classes).double()
    with torch.no_grad():
        for index, parameter in enumerate(made.parameters()):
            fan_in = max(1, parameter[0].numel())
            parameter.copy_(
                pattern(*parameter.shape, shift=index) * (1.4 / fan_in**0.5 if parameter.dim() > 1 else 0.1)
            )
    return made


def digest(tensors):
    """Returns a few numbers of each tensor: the first, the middle one, the last, and the norm."""
    flat = [tensor.detach().double().flatten() for tensor in tensors]
    return [[each[0].item(), each[len(each) // 2].item(), each[-1].item(), each.norm().item()] for each in flat]


def pairs(ours, theirs):
    """Returns pairs of our and their parameters; theirs of an embedding is transposed."""
    found = []
    for name, parameter in ours.named_parameters():
        words = name.split(".")
        if words[0] == "embedding":
            found.append((parameter, theirs.EmbeddingLayer.weight))
        elif words[0] in ("to_image", "from_image"):
            layer = theirs.AggregationLayer if words[0] == "to_image" else theirs.ExtractionLayer
            found.append((parameter, layer.Layer.weight))
        else:
            found.append((parameter, _of_stage(ours.stages, theirs.MainLayers[int(words[1])], words)))
    return found


def _of_stage(stages, theirs, words):
    layers = [layer for layer in stages[int(words[1])] if list(layer.parameters())]
    layer, last = stages[int(words[1])][int(words[2])], words[-1]
    blocks = [each for each in layers if "expand" in dict(each.named_children())]
    if layer in blocks:
        first = type(theirs.Layers[0]).__name__ != "ResidualBlock"
        block = theirs.Layers[blocks.index(layer) + first]
        number = {"expand": 1, "mix": 2, "project": 3}[words[3]]
        owner = getattr(block, f"LinearLayer{number}").Layer if last == "weight" else None
        return owner.weight if owner is not None else getattr(block, f"NonLinearity{number}").Bias
    transition = next(each for each in theirs.Layers if type(each).__name__ != "ResidualBlock")
    if words[3:] in (["basis"], ["basis", "weight"]):
        return transition.Basis if words[3:] == ["basis"] else transition.Basis.weight
    if words[3:4] == ["linear"]:
        return transition.LinearLayer.weight
    return transition.LinearLayer.Layer.weight


def copy(source, target):
    """Copies parameters, of which that of an embedding is transposed."""
    with torch.no_grad():
        target.copy_(source if source.shape == target.shape else source.T)


def networks(widths, group_width, latent_dim, num_classes):
    """Returns the authors' generator and discriminator."""
    from R3GAN.Networks import Discriminator, Generator

    groups, blocks = [width // group_width for width in widths], [2] * len(widths)
    extra = [{}, {}]
    if num_classes:
        sizes = (latent_dim, widths[0])
        extra = [{"ConditionDimension": num_classes, "ConditionEmbeddingDimension": size} for size in sizes]
    generator = Generator(latent_dim, widths, groups, blocks, 2, **extra[0])
    discriminator = Discriminator(widths[::-1], groups[::-1], blocks, 2, **extra[1])
    for network in (generator, discriminator):
        for parameter in network.parameters():  # filters stay in float32, which their operator requires
            parameter.data = parameter.data.double()
        for stage in network.MainLayers:
            stage.DataType = torch.float64
    return generator, discriminator


def turn(steps, adam, step, num_classes, gamma):
    """Takes the authors' step of the network that requires gradients and returns the means of what it reports."""
    real, labels = images(step)
    condition = torch.nn.functional.one_hot(labels, num_classes).double() if num_classes else None
    adam.zero_grad()
    if gamma is None:
        found = steps.AccumulateGeneratorGradients(latents(2 * step + 1), real, condition)[:1]
    else:
        loss, _, *penalties = steps.AccumulateDiscriminatorGradients(latents(2 * step), real, condition, gamma)
        found = [loss, *penalties]
    adam.step()
    return [values.mean().item() for values in found]


def train_reference(num_classes):
    """Trains the authors' networks in their way and returns losses and digests."""
    from R3GAN.Trainer import AdversarialTraining
    from training.training_loop import cosine_decay_with_warmup as cosine

    ours = module(num_classes)
    generator, discriminator = networks(WIDTHS, 4, 6, num_classes)
    average = networks(WIDTHS, 4, 6, num_classes)[0]
    paired = {
        "generator": pairs(ours.generator, generator),
        "discriminator": pairs(ours.discriminator, discriminator),
        "average": pairs(ours.generator, average),
    }
    for found in paired.values():
        for source, target in found:
            copy(source, target)
    adams = [torch.optim.Adam(network.parameters(), eps=1e-8) for network in (discriminator, generator)]
    steps, losses = AdversarialTraining(generator, discriminator), []
    for step in range(STEPS):
        at = [cosine(step * BATCH, a, OVER, final_value=b) for a, b in (RATE, BETA, GAMMA, HALF_LIFE)]
        rate, beta, gamma, half_life = at
        for adam in adams:
            adam.param_groups[0].update(lr=rate, betas=(0, beta))
        generator.requires_grad_(False), discriminator.requires_grad_(True)
        losses.append(turn(steps, adams[0], step, num_classes, gamma))
        generator.requires_grad_(True), discriminator.requires_grad_(False)
        losses[-1] += turn(steps, adams[1], step, num_classes, None)
        share = 0.5 ** (BATCH / max(half_life, 1e-8))
        with torch.no_grad():
            for averaged, current in zip(average.parameters(), generator.parameters(), strict=True):
                averaged.copy_(current.lerp(averaged, share))
    restored = {
        name: [theirs if mine.shape == theirs.shape else theirs.T for mine, theirs in found]
        for name, found in paired.items()
    }
    return {"losses": losses} | {name: digest(tensors) for name, tensors in restored.items()}


def count_reference(image_size, width, group_width, num_classes, constant_until):
    """Returns the numbers of parameters of the authors' networks in a preset of `train.py`, written out."""
    widths = {32: [width or 768] * 4, 64: [768, 768, 768, 768, 384], 256: [768, 768, 768, 768, 384, 192, 96]}[
        image_size
    ]
    widths = [width] * 5 if constant_until == 64 else widths
    made = networks(widths, group_width, 64, num_classes)
    return [sum(parameter.numel() for parameter in network.parameters()) for network in made]


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    record = {
        "parameters": {name: count_reference(*preset) for name, preset in PRESETS.items()},
        "steps": {str(num_classes): train_reference(num_classes) for num_classes in (0, 7)},
    }
    RECORD.write_text(json.dumps(record) + "\n")
