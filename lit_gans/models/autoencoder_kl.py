"""Adversarial autoencoders. `quantizer=kl`: Rombach, Blattmann, Lorenz, Esser and Ommer 2022, "High-Resolution Image
Synthesis with Latent Diffusion Models". `quantizer=vq`: Esser, Rombach and Ommer 2021, "Taming Transformers for
High-Resolution Image Synthesis". `quantizer=fsq`: Mentzer, Minnen, Agustsson and Tschannen 2023, "Finite Scalar
Quantization: VQ-VAE Made Simple". `quantizer=lfq`: Yu et al. 2023, "Language Model Beats Diffusion -- Tokenizer is
Key to Visual Generation".
"""

from __future__ import annotations

import inspect
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from lit_gans.checkpoints.diffusers import Published, read_published
from lit_gans.checkpoints.format import to_plain
from lit_gans.common.errors import RefusedInput, refuse_below, refuse_not_positive
from lit_gans.common.modes import evaluating
from lit_gans.common.noise import Noise
from lit_gans.common.precision import full_precision
from lit_gans.common.size import as_size, sides, size_value
from lit_gans.data.contracts import ImageSource, PairedSource, UnpairedSource
from lit_gans.data.images import to_networks
from lit_gans.data.reading import images_in_rows, num_images
from lit_gans.metrics.perceptual import Perceptual, perceptual_network
from lit_gans.networks.autoencoder import Autoencoder
from lit_gans.networks.autoencoder_names import load_diffusers
from lit_gans.networks.blocks import Norm, cut, multiple_of, padded
from lit_gans.networks.bottlenecks import (
    DiagonalGaussian,
    FiniteScalarQuantizer,
    LookupFreeQuantizer,
    VectorQuantizer,
    entropy_of_mean,
    perplexity,
    usage_of,
)
from lit_gans.networks.patchgan import PatchGAN
from lit_gans.training.adaptive_weight import LARGEST, adaptive_weight, gradient_at, with_gradient
from lit_gans.training.backend import Backend
from lit_gans.training.batch import Batch, refuse_layout
from lit_gans.training.losses import Scored, critic_generator, hinge_discriminator
from lit_gans.training.optim import OptimizerConfig
from lit_gans.training.sampling import Weights
from lit_gans.training.schedules import Number, is_zero, refuse_weights
from lit_gans.training.translator import Translator, spread

logger = logging.getLogger(__name__)

_CODEBOOK_WEIGHT = 1.0  # weight of the quantizer's loss (Esser et al. 2021, equation 4)


class AutoencoderKL(Translator):
    """Autoencoder with a small latent map, trained with L1, perceptual and adversarial losses.

    The reconstruction loss is the L1 distance plus a perceptual distance. The adversarial loss uses a patch
    discriminator. The defaults follow Rombach et al. (2022). Images are downsampled three times by a factor of 2. The
    latent map has 4 channels, with a small penalty towards the standard normal distribution. The adversarial losses are
    hinge losses with half the adaptive weight, and the discriminator starts late. The default `generator_width` is a
    quarter of the paper's width of 128. The published code uses batch norm in the discriminator. The statistics of
    batch norm would differ between ranks, so the default is instance norm.

    The weight of the adversarial loss is adapted to the gradients with respect to the weights of the decoder's last
    layer (Esser et al. 2021, equation 7). Delta is 1e-6 as in the paper (1e-4 in the authors' code). The weight is at
    most 1e4, as in the authors' code. The reconstruction loss of VQGAN and of this class is a mean, but latent
    diffusion sums over all values of an image. So the limit for `kl` is 1e4 / (channels * height * width).

    The gradients are averaged over ranks before their norms are computed, so that several ranks give the same weight as
    a single process. They are computed from the layer's input and the gradient of its output. The computation does not
    use the layer's weights, so every strategy supports it. With `accumulate_gradients`, each microbatch has its own
    adaptive weight.

    The data can be any images. If the data are pairs, the targets are reconstructed.

    The published autoencoders of Stable Diffusion, SDXL and FLUX have `asymmetric_padding`, `groups=32`, and
    `quant_conv` and `post_quant_conv` (except FLUX). `from_diffusers` reads them.

    Args:
        quantizer: `kl` samples latents from Gaussians with a KL penalty. `vq` replaces each latent vector by the
            nearest of `num_codes` learned vectors. `fsq` rounds each value of a latent to one of `levels`. `lfq`
            replaces each value of a latent by its sign.
        latent_channels: number of channels of the latent map.
        multipliers: number of channels at each resolution relative to `generator_width`, from the highest resolution to
            the lowest. Each resolution is half of the previous resolution.
        blocks: number of residual blocks per resolution in the encoder. The decoder has one more block per
            resolution.
        groups: number of groups of every group norm. null uses 32 groups, or fewer groups in narrow layers, so that
            every group has at least 4 channels.
        attention: whether there is self-attention at the lowest resolution.
        asymmetric_padding: whether downsampling pads on the right and at the bottom only, as in the authors' code,
            instead of on all sides.
        quant_conv: whether a 1x1 convolution follows the encoder.
        post_quant_conv: whether a 1x1 convolution precedes the decoder.
        scaling_factor: factor by which a diffusion model multiplies latents. The factor is only stored, for exports.
        shift_factor: number that a diffusion model subtracts from latents before it multiplies them. The number is only
            stored.
        train: `all`, or `decoder` to freeze the encoder and the vectors, so that the latents of images do not change.
        num_codes: number of learned vectors (`vq`). With every quantizer except `kl`, `codebook/perplexity` logs the
            effective number of vectors in a batch.
        levels: number of levels of each latent channel (`fsq`), one number for each channel.
        commitment_weight: weight of the encoder's term in the quantizer's loss (`vq`, `lfq`).
        entropy_weight: weight of the entropies that make the encoder decide for one vector at each position, but use
            all vectors (`lfq`, Yu et al. 2023, equation 5).
        legacy: whether `commitment_weight` applies to the term of the vectors instead (`vq`). The published VQGAN
            weights were trained in this way, with `legacy=True` in the authors' code.
        kl_weight: weight of the KL divergence of an image relative to its reconstruction loss, where both are sums over
            all values (`kl`). It can be a schedule.
        perceptual: network of the perceptual loss: `efficientnet_lite0`; `lpips_vgg`, `lpips_alex` or `lpips_squeeze`,
            which load their weights from `perceptual_file`; or `none`.
        perceptual_file: path of the weights of the perceptual network, see `perceptual_network`.
        perceptual_weight: weight of the perceptual loss relative to the mean absolute difference. It can be a schedule.
        adversarial_weight: weight of the adversarial loss, which is multiplied by the adaptive weight. It can be a
            schedule. With 0, the discriminator is not trained.
        adaptive_weight: whether to adapt the weight of the adversarial loss to the gradients (equation 7).
        discriminator_start: first iteration in which the discriminator is trained and its loss is used. null starts the
            discriminator after a quarter of the training run.
        jitter, generator_width, discriminator_width, patch_depth: see `Translator`.
        norm: type of normalization in the discriminator, for example `instance`.
        generator_optimizer, discriminator_optimizer: see `AdversarialModule`.
        **kwargs: see `Translator` and `AdversarialModule`.

    Raises:
        RefusedInput: if a value is out of range, or if an option is set that the quantizer does not have.
    """

    generator: Autoencoder
    trains_against: tuple[str, ...] = ("efficientnet_lite0",)

    def __init__(
        self,
        quantizer: Literal["kl", "vq", "fsq", "lfq"] = "kl",
        latent_channels: int = 4,
        multipliers: Sequence[int] = (1, 2, 4, 4),
        blocks: int = 2,
        groups: int | None = None,
        attention: bool = True,
        asymmetric_padding: bool = False,
        quant_conv: bool = False,
        post_quant_conv: bool = False,
        scaling_factor: float = 1.0,
        shift_factor: float | None = None,
        train: Literal["all", "decoder"] = "all",
        num_codes: int = 1024,
        levels: Sequence[int] = (8, 5, 5, 5),
        commitment_weight: float = 0.25,
        entropy_weight: float = 0.1,
        legacy: bool = False,
        kl_weight: Number = 1e-6,
        perceptual: Perceptual = "efficientnet_lite0",
        perceptual_file: str | None = None,
        perceptual_weight: Number = 1.0,
        adversarial_weight: Number = 0.5,
        adaptive_weight: bool = True,
        discriminator_start: int | None = None,
        jitter: bool = False,
        generator_width: int = 32,
        discriminator_width: int = 64,
        patch_depth: int = 3,
        norm: Norm = "instance",
        generator_optimizer: OptimizerConfig = OptimizerConfig("Adam", lr=1e-4, betas=(0.5, 0.9)),
        discriminator_optimizer: OptimizerConfig = OptimizerConfig("Adam", lr=1e-4, betas=(0.5, 0.9)),
        **kwargs: Any,
    ) -> None:
        super().__init__(
            jitter=jitter,
            generator_width=generator_width,
            discriminator_width=discriminator_width,
            patch_depth=patch_depth,
            norm=norm,
            generator_optimizer=generator_optimizer,
            discriminator_optimizer=discriminator_optimizer,
            **kwargs,
        )
        refuse_below(1, blocks=blocks, groups=groups)
        refuse_not_positive(scaling_factor=scaling_factor)
        refuse_below(0, discriminator_start=discriminator_start)
        refuse_weights(kl_weight=kl_weight, commitment_weight=commitment_weight, entropy_weight=entropy_weight)
        if quantizer == "fsq" and (len(levels) != latent_channels or min(levels) < 3):
            raise RefusedInput(
                f"levels={[*levels]}: quantizer=fsq needs a number of at least 3 for each of the"
                f" latent_channels={latent_channels} channels."
            )
        _refuse_options(
            quantizer,
            num_codes=num_codes,
            levels=levels,
            commitment_weight=commitment_weight,
            entropy_weight=entropy_weight,
            legacy=legacy,
            kl_weight=kl_weight,
        )
        refuse_weights(perceptual_weight=perceptual_weight, adversarial_weight=adversarial_weight)
        self.quantizer, self.latent_channels, self.entropy_weight = quantizer, latent_channels, entropy_weight
        self.kl_weight, self.adversarial_weight, self.adaptive_weight = kl_weight, adversarial_weight, adaptive_weight
        self.perceptual, self.perceptual_file, self.perceptual_weight = perceptual, perceptual_file, perceptual_weight
        self.discriminator_start = discriminator_start
        self.scaling_factor, self.shift_factor = scaling_factor, shift_factor
        if perceptual != "efficientnet_lite0" or is_zero(perceptual_weight):
            self.trains_against = ()
        self.input_channels = self.channels
        self._perceptual: tuple[nn.Module, ...] = ()  # a tuple hides the network from optimizers and checkpoints
        shape = self.channels, self.image_size
        bottlenecks: dict[str, Callable[[], nn.Module]] = {
            "kl": DiagonalGaussian,
            "vq": partial(VectorQuantizer, num_codes, latent_channels, commitment_weight, legacy),
            "fsq": partial(FiniteScalarQuantizer, levels),
            "lfq": partial(LookupFreeQuantizer, latent_channels, commitment_weight, entropy_weight),
        }
        with self.building():
            self.generator = Autoencoder(
                *shape,
                latent_channels,
                bottlenecks[quantizer](),
                2 * latent_channels if quantizer == "kl" else latent_channels,
                generator_width,
                multipliers,
                blocks,
                groups,
                attention,
                asymmetric_padding,
                quant_conv,
                post_quant_conv,
            )
            self.discriminator = PatchGAN(0, *shape, discriminator_width, patch_depth, norm, zero_biases=False)
        if train == "decoder":
            for part in (self.generator.encoder, self.generator.bottleneck):
                part.requires_grad_(False)

    @classmethod
    def from_diffusers(cls, path: str | Path, **kwargs: Any) -> AutoencoderKL:
        """Returns an autoencoder with published weights and a new discriminator. No code in the files is executed.

        Args:
            path: folder of `diffusers.AutoencoderKL` (`config.json` and safetensors, which can be sharded), or a
                checkpoint of latent diffusion's own code (.safetensors or .ckpt), which can contain a diffusion model.
            **kwargs: other arguments of the class, such as `image_size` and `train`. A checkpoint of latent diffusion
                does not contain `scaling_factor` and `shift_factor`, so they should be passed.

        Raises:
            RefusedInput: if the path contains no supported autoencoder, a file is damaged, or an argument contradicts
                the published settings.
        """
        published = read_published(path)
        settings = _settings(published.config)
        if "scaling_factor" not in {**settings, **kwargs}:
            logger.warning(
                "%s does not contain the scaling factor, which exports need: pass scaling_factor=0.18215 (SD), 0.13025"
                " (SDXL), or 0.3611 with shift_factor=0.1159 (FLUX).",
                path,
            )
        module = cls(**{**settings, **kwargs})
        _load_weights(module, published, path, _SHAPES)
        return module

    def load_published(self, path: str | Path) -> None:
        """Loads published weights into the generator, see `from_diffusers`.

        Raises:
            RefusedInput: see `from_diffusers`; also if a setting of this module differs from the published autoencoder.
        """
        _load_weights(self, read_published(path), path, (*_SHAPES, *_SCALES))

    # ---- the training

    def begin_training(self) -> None:
        if not is_zero(self.perceptual_weight):
            network = perceptual_network(self.perceptual, self.perceptual_file, self.channels)
            self._perceptual = () if network is None else (network,)

    def on_train_start(self) -> None:
        super().on_train_start()
        self._refuse_length()

    def new_backend(self, num_iterations: int = 0) -> Backend:
        backend = super().new_backend(num_iterations)
        self._refuse_length()
        return backend

    def _refuse_length(self) -> None:
        """Raises `RefusedInput` if the discriminator would never start, or at an unknown iteration."""
        total = self.progress.total
        if is_zero(self.adversarial_weight):
            return
        if self.discriminator_start is None and not total:
            raise RefusedInput(
                "the discriminator starts after a quarter of the training, whose length is unknown: set"
                " trainer.max_steps, or model.discriminator_start=NUMBER; without Lightning,"
                " new_backend(num_iterations=NUMBER)."
            )
        if self.discriminator_start is not None and 0 < total <= self.discriminator_start:
            raise RefusedInput(
                f"discriminator_start={self.discriminator_start}: the discriminator would never be trained in"
                f" {total} iterations: set a smaller number, or adversarial_weight=0."
            )

    @property
    def trains_discriminators(self) -> bool:
        start = self.progress.total // 4 if self.discriminator_start is None else self.discriminator_start
        return self.progress.iterations >= start and not is_zero(self.adversarial_weight)

    # ---- the batch: `input` and `image` are the same image

    def refuse_batch(self, batch: Batch) -> None:
        """Raises `RefusedInput` if a batch has images with a wrong number of channels."""
        refuse_layout(batch["image"], self.image_shape, any_size=True)

    def sample_noise(self, noise: Noise, num: int) -> Batch:
        tensors = {"jitter": noise.uniform("jitter", num, 3)}
        if self.quantizer == "kl":
            multiple = self.generator.multiple
            latent = (self.latent_channels, *(side // multiple for side in sides(self.image_size)))
            tensors["posterior"] = noise.normal("posterior", num, *latent)
        return tensors

    def augment(self, batch: Batch) -> Batch:
        image = self._jittered(batch["image"], batch["jitter"])
        return {**batch, "image": image, "input": image}

    def generate(self, generator: nn.Module, batch: Batch) -> Tensor:
        """Reconstructs `input`, without noise."""
        return self._reconstructed(generator, batch)[0]

    def with_fake(self, batch: Batch) -> Batch:
        noise = batch.get("posterior")
        images, features, loss, codes, assignment = self._reconstructed(self.generator, batch, noise)
        outputs = {"fake": images, "features": features, "bottleneck": loss, "codes": codes, "assignment": assignment}
        return {**batch, **{name: value for name, value in outputs.items() if value is not None}}

    def _reconstructed(
        self, generator: nn.Module, batch: Batch, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
        images, *others = generator(padded(batch["input"], self.generator.multiple), noise)
        return (cut(images, batch["input"]), *others)

    # ---- losses

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> dict[str, Scored]:
        on_real, on_fake = self.discriminator(real), self.discriminator(fake)
        return {"discriminator": Scored(hinge_discriminator(on_real, on_fake) / 2, on_real, on_fake)}

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        bottleneck = self._bottleneck_loss(batch)
        if not self.trains_discriminators:
            return self._reconstruction_loss(fake, batch["image"]) + bottleneck
        weight = self.now(self.adversarial_weight)
        if not self.adaptive_weight:
            adversarial = critic_generator(self.discriminator(fake))
            self.terms["loss/adversarial"] = adversarial.detach()
            return self._reconstruction_loss(fake, batch["image"]) + bottleneck + weight * adversarial
        images = full_precision(fake.detach()).requires_grad_()
        reconstruction = self._reconstruction_loss(images, batch["image"])
        adversarial = critic_generator(self.discriminator(images))
        of_reconstruction, of_adversarial = gradient_at(reconstruction, images), gradient_at(adversarial, images)
        # latent diffusion sums its reconstruction loss over an image, but VQGAN and this class average it
        largest = LARGEST / (math.prod(self.image_shape) if self.quantizer == "kl" else 1)
        layer, features, mean = self.generator.last, batch["features"], self.mean_over_ranks
        balance = adaptive_weight(layer, features, of_reconstruction, of_adversarial, mean, largest)
        self.terms |= {"loss/adversarial": adversarial.detach(), "adaptive_weight": balance}
        value = reconstruction + weight * balance * adversarial
        return with_gradient(value, fake, of_reconstruction + weight * balance * of_adversarial) + bottleneck

    def _reconstruction_loss(self, fake: Tensor, real: Tensor) -> Tensor:
        loss = functional.l1_loss(full_precision(fake), full_precision(real))
        self.terms["loss/l1"] = loss.detach()
        for network in self._perceptual:
            distance = network.to(fake.device)(fake, real).mean()
            self.terms["loss/perceptual"] = distance.detach()
            loss = loss + self.now(self.perceptual_weight) * distance
        return loss

    def _bottleneck_loss(self, batch: Batch) -> Tensor:
        loss = batch["bottleneck"].mean()
        if "assignment" in batch:
            loss = loss - self.entropy_weight * entropy_of_mean(batch["assignment"], self.mean_over_ranks)
        self.terms["loss/bottleneck"] = loss.detach()
        if self.quantizer == "kl":
            return self.now(self.kl_weight) / math.prod(self.image_shape) * loss
        num_codes: int = self.generator.bottleneck.num_codes  # type: ignore[assignment]
        usage = self.mean_over_ranks(usage_of(batch["codes"], num_codes))
        self.terms["codebook/perplexity"] = perplexity(usage)
        return _CODEBOOK_WEIGHT * loss

    # ---- latents and reconstructions

    @torch.no_grad()
    def encode(
        self, pictures: Float[Tensor, "n c h w"], *, weights: Weights | None = None
    ) -> tuple[Float[Tensor, "n z p q"], Int64[Tensor, "n p q"] | None]:
        """Returns the latents of images in [0, 1]: means (`kl`), or quantized vectors and their indices.

        Args:
            pictures: images whose height and width are multiples of the encoder's downsampling factor.
            weights: see `AdversarialModule.sample`.

        Raises:
            RefusedInput: if the images are not floats, if the number of channels differs from the model's, or if height
                or width is not such a multiple.
        """
        self.refuse_inputs(pictures, None)
        multiple, size = self.generator.multiple, as_size(tuple(pictures.shape[-2:]))
        if any(side % multiple for side in sides(size)):
            nearest = as_size([multiple_of(side, multiple) for side in sides(size)])
            raise RefusedInput(
                f"pictures have the size {size_value(size)}, but encode needs a height and width that are multiples of"
                f" {multiple}: crop them, pad them to {size_value(nearest)}, or use translate, which pads and crops."
            )
        network = cast(Autoencoder, self.sampling_generator(weights))
        with evaluating(network), torch.autocast(self.device.type, enabled=False):
            return network.encode(self.to_generator(pictures * 2 - 1))

    @torch.no_grad()
    def decode_latents(
        self, latents: Float[Tensor, "n z p q"], *, weights: Weights | None = None
    ) -> Float[Tensor, "n c h w"]:
        """Decodes latents to images in [0, 1], see `encode`.

        Raises:
            RefusedInput: if the latents are not floats, or if the number of channels differs from `latent_channels`.
        """
        if latents.dim() != 4 or latents.shape[1] != self.latent_channels:
            raise RefusedInput(
                f"the latents have the shape {tuple(latents.shape)}, but the decoder expects (n,"
                f" {self.latent_channels}, height, width), as encode returns them."
            )
        network = cast(Autoencoder, self.sampling_generator(weights))
        with evaluating(network), torch.autocast(self.device.type, enabled=False):
            return self.to_unit_range(network.decode(self.to_generator(latents)).float())

    def sampling_inputs(self, num: int, seed: int, data: Any = None) -> Tensor:
        """Returns the images of the data that the reconstruction FID uses as its reference."""
        return self.sampling_share(torch.arange(num), num, seed, data)

    def sampling_share(self, rows: Int64[Tensor, " n"], num: int, seed: int, data: Any = None) -> Tensor:
        return to_networks(_images_of(data, num, rows))

    def num_different(self, num: int, data: Any = None) -> int:
        return min(num, num_images(data)) if isinstance(data, ImageSource) else num

    def sampling_batch_like(self, batch: Batch, seed: int) -> Batch:
        return self.sampling_batch(batch["image"], None, seed)

    def held_out(self, data: Any) -> Mapping[str, Tensor]:
        """Returns images that a datamodule excludes from training, or training images if it excludes no images."""
        if isinstance(data, UnpairedSource):
            return {"image": data.unseen["image"]}
        if isinstance(data, PairedSource):
            return {"image": data.held_out["image"]}
        return {"image": _images_of(data, _MOST_HELD_OUT)}

    def held_out_share(self, data: Any, num: int, rank: int = 0, world_size: int = 1) -> Tensor:
        """Selects at most `num` images of `held_out` at even intervals, and returns the share of one rank.

        The images of other ranks are not read. The share can be empty.
        """
        images = None
        if isinstance(data, UnpairedSource | PairedSource):
            images = self.held_out(data)["image"]
        most = _MOST_HELD_OUT if images is None else len(images)
        rows = spread(torch.arange(most), min(num, most)).tensor_split(world_size)[rank]
        return _images_of(data, _MOST_HELD_OUT, rows) if images is None else images[rows]

    def sample_grid(self, num: int, seed: int, data: Any = None) -> tuple[Tensor, int]:
        """Returns rows of images, each followed by a row of their reconstructions."""
        pairs = max(1, num // 2)
        columns = min(pairs, math.ceil(math.sqrt(num)))
        real = to_networks(spread(self.held_out(data)["image"], pairs // columns * columns))
        fake = self.decode(real, seed=seed).cpu()
        pair = real.add(1).div(2), fake
        rows = torch.stack([images.reshape(-1, columns, *images.shape[1:]) for images in pair], 1)
        return rows.flatten(0, 2), columns


_QUANTIZERS_WITH = {  # quantizers on which each option has an effect
    "num_codes": ("vq",),
    "levels": ("fsq",),
    "commitment_weight": ("vq", "lfq"),
    "entropy_weight": ("lfq",),
    "legacy": ("vq",),
    "kl_weight": ("kl",),
}


def _refuse_options(quantizer: str, **options: Any) -> None:
    """Raises `RefusedInput` if an option differs from its default, but has no effect on the quantizer."""
    parameters = inspect.signature(AutoencoderKL.__init__).parameters
    for name, value in options.items():
        if quantizer not in _QUANTIZERS_WITH[name] and to_plain(value) != to_plain(parameters[name].default):
            needed = " or ".join(f"quantizer={known}" for known in _QUANTIZERS_WITH[name])
            raise RefusedInput(f"{name} has no effect with quantizer={quantizer}: it needs {needed}; leave it out.")


_MOST_HELD_OUT = 1000


def _images_of(data: Any, num: int, rows: Int64[Tensor, " n"] | None = None) -> Tensor:
    """Returns the `num` images that `spread` selects from a source, or only the selected images at indices `rows`."""
    if not isinstance(data, ImageSource):
        raise RefusedInput(
            "the autoencoder needs images to reconstruct: set input=FOLDER, or call translate(pictures); callbacks need"
            " a datamodule with real_batches (lit_gans.data.contracts.ImageSource)."
        )
    selected = spread(torch.arange(num_images(data)), num)
    selected = selected if rows is None else selected[rows]
    return images_in_rows(data, selected) if len(selected) else torch.empty(0, data.channels, *sides(data.image_size))


# arguments that the weights of a published autoencoder determine
_SHAPES = (
    "channels",
    "generator_width",
    "multipliers",
    "blocks",
    "latent_channels",
    "groups",
    "attention",
    "asymmetric_padding",
    "quant_conv",
    "post_quant_conv",
)
_SCALES = ("scaling_factor", "shift_factor")


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `AutoencoderKL` for the entries of config.json in a folder of diffusers."""
    widths = config["block_out_channels"]
    width = math.gcd(*widths)
    settings = {
        "channels": config["in_channels"],
        "generator_width": width,
        "multipliers": tuple(channels // width for channels in widths),
        "blocks": config["layers_per_block"],
        "latent_channels": config["latent_channels"],
        "groups": config["norm_num_groups"],
        "attention": config["mid_block_add_attention"],
        "asymmetric_padding": True,
        "quant_conv": config["use_quant_conv"],
        "post_quant_conv": config["use_post_quant_conv"],
    }
    settings |= {name: config[name] for name in _SCALES if name in config}
    return settings | ({"image_size": as_size(config["sample_size"])} if "sample_size" in config else {})


def _load_weights(module: AutoencoderKL, published: Published, path: str | Path, names: Sequence[str]) -> None:
    """Loads published weights, and raises `RefusedInput` if a setting in `names` differs from the published setting."""
    settings = to_plain(_settings(published.config))
    needed = {name: settings[name] for name in names if name in settings and module.hparams[name] != settings[name]}
    if needed:
        words = [
            f"{'data' if name == 'channels' else 'model'}.{name}={json.dumps(value, separators=(',', ':'))}"
            for name, value in needed.items()
        ]
        raise RefusedInput(f"{path}: its weights need other settings than this model has: {' '.join(words)}.")
    if published.config.get("latents_mean") or published.config.get("latents_std"):
        logger.warning("latents_mean and latents_std in %s are not kept: add them to exported folders.", path)
    load_diffusers(module.generator, published.tensors, published.originals, str(path))
