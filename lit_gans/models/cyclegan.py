"""CycleGAN: Zhu, Park, Isola and Efros 2017, "Unpaired Image-to-Image Translation using Cycle-Consistent Adversarial
Networks".
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lit_gans.checkpoints.format import FORMAT_KEY
from lit_gans.common.errors import refuse_below
from lit_gans.common.noise import Noise
from lit_gans.common.size import sides
from lit_gans.data.images import to_networks
from lit_gans.networks.cyclegan import BothWays, ResidualTranslator, default_blocks
from lit_gans.networks.patchgan import PatchGAN
from lit_gans.training.batch import Batch
from lit_gans.training.gan import Kind
from lit_gans.training.losses import Scored, least_squares_discriminator, least_squares_generator
from lit_gans.training.sampling import Weights
from lit_gans.training.schedules import Number, refuse_weights
from lit_gans.training.translator import Direction, Translator, spread


class CycleGAN(Translator):
    """Translates between two domains without pairs, with two generators, two patch discriminators and a cycle loss.

    The defaults follow sections 3, 4 and 7:

    - The adversarial loss is the least-squares loss, and the discriminators' losses are halved.
    - The cycle loss is 10 times the L1 distance between an image and its translation to the other domain and back.
    - The identity loss is 5 times the L1 distance between an image of a domain and its translation to the same domain.
      It is the default of the authors' code, but the paper uses it for paintings only (section 5.2).
    - The discriminators train with a pool of 50 generated images per domain.
    - The generators have 6 residual blocks, or 9 for images of at least 256 pixels. The paper's batch size is 1.

    As in the authors' code, normalization layers have no scales and shifts. The generators step first, and the
    discriminators train on images that were generated before this step.

    The two generators are `generator.a_to_b` and `generator.b_to_a`. One optimizer steps both. `discriminator_a`
    classifies images of A, and `discriminator_b` classifies images of B. The data need no pairs: use `data=unpaired` or
    `emoji_fonts`. With paired data, the pairing is ignored.

    The pool contains generated images from all ranks and is identical on all ranks. So two ranks train on the same
    images as a single process.

    Args:
        cycle_weight: weight of the cycle consistency loss (equation 2). It can be a schedule.
        identity_weight: weight of the identity loss (section 5.2) relative to `cycle_weight`. 0 disables this loss.
        pool_size: number of generated images per domain in the pool. With 0, the discriminators only train on newly
            generated images.
        blocks: number of residual blocks per generator. null uses 6, or 9 for images of at least 256 pixels.
        **kwargs: see `Translator` and `AdversarialModule`.
    """

    needed_data = "images of two domains: use data=unpaired with two folders"
    generator_first = True
    discriminator_names = ("discriminator_a", "discriminator_b")
    directions = ("a_to_b", "b_to_a")
    generator: BothWays
    discriminator_a: nn.Module
    discriminator_b: nn.Module

    def __init__(
        self,
        cycle_weight: Number = 10.0,
        identity_weight: float = 0.5,
        pool_size: int = 50,
        blocks: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        refuse_weights(cycle_weight=cycle_weight, identity_weight=identity_weight)
        blocks = default_blocks(self.image_size) if blocks is None else blocks
        refuse_below(1, blocks=blocks)
        self.cycle_weight, self.identity_weight, self.pool_size = cycle_weight, identity_weight, pool_size
        self.input_channels = self.channels
        self._pools = self._new_pools()

        def translator() -> nn.Module:
            return ResidualTranslator(self.channels, self.channels, self.generator_width, blocks, self.norm)

        def discriminator() -> nn.Module:
            sizes = self.image_size, self.discriminator_width, self.patch_depth
            return PatchGAN(0, self.channels, *sizes, self.norm, affine=False)

        with self.building():
            self.generator = BothWays(translator(), translator())
            self.discriminator_a, self.discriminator_b = discriminator(), discriminator()

    # ---- the batch: `input` has images of A and `image` has images of B, which are cropped independently

    def sample_noise(self, noise: Noise, num: int) -> Batch:
        return {"jitter": noise.uniform("jitter", num, 6), "pool": noise.uniform("pool", num, 4)}

    def dummy_batch(self, num: int) -> Batch:
        shape = num, self.channels, *sides(self.image_size)
        return {"input": torch.empty(shape), "image": torch.empty(shape)}

    def augment(self, batch: Batch) -> Batch:
        of_image, of_input = batch["jitter"].chunk(2, 1)
        image, inputs = self._jittered(batch["image"], of_image), self._jittered(batch["input"], of_input)
        return {**batch, "image": image, "input": inputs}

    def generate(self, generator: nn.Module, batch: Batch) -> Tensor:
        """Translates `input` to B. If the batch has no `input`, translates `image` to A."""
        name = "input" if "input" in batch else "image"
        domains = "input", "image"
        images: tuple[Tensor, ...] = generator(*(batch[name] if name == domain else None for domain in domains))
        return images[0]

    def with_fake(self, batch: Batch) -> Batch:
        """Adds the translations to B, `fake`, and the translations to A, `fake_input`, to a batch."""
        fake, fake_input = self.generator(batch["input"], batch["image"])
        return {**batch, "fake": fake, "fake_input": fake_input}

    @property
    def discriminator_inputs(self) -> dict[str, dict[Kind, str]]:
        of_a: dict[Kind, str] = {"real": "input", "fake": "fake_input"}
        return {"discriminator_a": of_a, "discriminator_b": {"real": "image", "fake": "fake"}}

    # ---- the pool of generated images

    def _new_pools(self) -> tuple[ImagePool, ImagePool]:
        return ImagePool(self.pool_size), ImagePool(self.pool_size)

    def discriminator_batch(self, batch: Batch) -> Batch:
        """Exchanges some translations for translations from previous steps, using the same pool on every rank."""
        if not self.pool_size:
            return batch
        backend = self.backend
        numbers = backend.gather(batch["pool"]).chunk(2, 1)
        for name, pool, pool_numbers in zip(("fake", "fake_input"), self._pools, numbers, strict=True):
            exchanged = pool.exchange(backend.gather(batch[name]), pool_numbers)
            batch = {**batch, name: exchanged.chunk(backend.world_size)[backend.rank]}
        return batch

    def reset_progress(self) -> None:
        super().reset_progress()
        self._pools = self._new_pools()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint[FORMAT_KEY]["pools"] = [pool.state_dict() for pool in self._pools]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self._pools = self._new_pools()
        for pool, state in zip(self._pools, checkpoint.get(FORMAT_KEY, {}).get("pools", ()), strict=False):
            pool.load_state_dict(state)

    # ---- losses

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> dict[str, Scored]:
        losses = {}
        for name, inputs in self.discriminator_inputs.items():
            on_real, on_fake = (self.get_submodule(name)(batch[inputs[kind]]) for kind in ("real", "fake"))
            losses[name] = Scored(least_squares_discriminator(on_real, on_fake) / 2, on_real, on_fake)
        return losses

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        image, inputs, fake_input = batch["image"], batch["input"], batch["fake_input"]
        on_a, on_b = self.discriminator_a(fake_input), self.discriminator_b(fake)
        loss = least_squares_generator(on_a) + least_squares_generator(on_b)
        cycle = self.now(self.cycle_weight)
        cycled_image, cycled_inputs = self.generator(fake_input, fake)
        distance = functional.l1_loss(cycled_image, image) + functional.l1_loss(cycled_inputs, inputs)
        loss = loss + cycle * distance
        if self.identity_weight:
            same_image, same_inputs = self.generator(image, inputs)
            distance = functional.l1_loss(same_image, image) + functional.l1_loss(same_inputs, inputs)
            loss = loss + cycle * self.identity_weight * distance
        return loss

    def classified_as_real(self, name: str, scores: Tensor) -> Tensor:
        return scores > 0.5

    # ---- samples

    def decode_in(
        self,
        direction: Direction,
        inputs: Float[Tensor, "n c h w"],
        *,
        seed: int = 0,
        weights: Weights | None = None,
        batch_size: int = 256,
    ) -> Float[Tensor, "n c h w"]:
        refuse_below(1, batch_size=batch_size)
        name = "input" if direction == "a_to_b" else "image"
        starts = range(0, len(inputs), batch_size)
        parts = (self.to_generator(inputs[start : start + batch_size]) for start in starts)
        return self.decode_batches(({name: part} for part in parts), weights)

    def exchange_domains(self) -> None:
        """Exchanges the domains A and B: swaps the two generators, and swaps the two discriminators."""
        for both in (self.generator, self.averaged_generator):
            if isinstance(both, BothWays):
                both.a_to_b, both.b_to_a = both.b_to_a, both.a_to_b
        self.discriminator_a, self.discriminator_b = self.discriminator_b, self.discriminator_a

    def sampling_batch_like(self, batch: Batch, seed: int) -> Batch:
        return {name: batch[name] for name in ("input", "image")}

    def sample_grid(self, num: int, seed: int, data: Any = None) -> tuple[Tensor, int]:
        """Returns six rows: images of A, their translations to B, their translations back to A, then the same for B."""
        columns = max(1, num // 6)
        rows = []
        for name, there, back in (("input", *self.directions), ("image", *self.directions[::-1])):
            real = to_networks(spread(self.held_out(data)[name], columns)).add(1).div(2)
            fake = self.translate(real, direction=there)
            rows += [real, fake.cpu(), self.translate(fake, direction=back).cpu()]
        return torch.cat(rows), columns


class ImagePool:
    """Pool of generated images, so that discriminators also train on images from previous steps (Shrivastava et al.
    2017).

    The first `size` images are stored and returned. After that, each new image is returned with probability 1/2.
    Otherwise, it replaces a random stored image, and the stored image is returned. The state is kept on the device, so
    that an exchange does not synchronize with the device, and is updated in place. It is part of checkpoints.

    Args:
        size: maximum number of stored images.

    Attributes:
        images: stored images (size + 1, c, h, w), or None before the first exchange. Only the first `count` images are
            used. The last row receives the images that are not stored.
        count: number of stored images, as a tensor (1,).
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.images: Tensor | None = None
        self.count = torch.zeros(1, dtype=torch.long)

    def exchange(self, new: Float[Tensor, "n c h w"], numbers: Float[Tensor, "n 2"]) -> Float[Tensor, "n c h w"]:
        """Returns each new image or a stored image in its place.

        The result is the same as if the images were exchanged one after the other: a new image can replace an earlier
        image of `new`, which is then returned.

        Args:
            new: generated images, without a graph.
            numbers: uniform random numbers in [0, 1). They determine whether an image is exchanged, and which stored
                image it replaces.
        """
        if self.images is None:
            self.images = new.new_zeros(self.size + 1, *new.shape[1:])
        images, count = self.images, self.count = self.images.to(new), self.count.to(new.device)
        order = torch.arange(len(new), device=new.device)
        is_full = count + order >= self.size
        leaves = is_full & (numbers[:, 0] >= 0.5)  # whether a stored image leaves the pool and is returned
        is_stored = leaves | ~is_full
        index = torch.where(is_full, (numbers[:, 1] * self.size).long(), count + order)
        stored, target = images[index], torch.where(is_stored, index, self.size)
        if len(new) > 1:  # otherwise, no image of `new` can replace another
            same = (index[:, None] == index) & is_stored  # (i, j): whether image j is stored at the index of image i
            previous = torch.where(same.tril(-1), order, -1).amax(1)  # the last of them before image i, or -1
            stored = torch.where(_per_image(previous < 0), stored, new[previous])
            target = torch.where(same.triu(1).any(1), self.size, target)  # a later image of `new` replaces this one
        images.index_copy_(0, target, new)
        count.add_(len(new)).clamp_(max=self.size)
        return torch.where(_per_image(leaves), stored, new)

    def state_dict(self) -> dict[str, Tensor]:
        """Returns a copy of the state on the CPU. It is empty before the first exchange."""
        if self.images is None:
            return {}
        return {"images": self.images[: self.size].cpu().clone(), "count": self.count.cpu().clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restores a state. An empty state empties the pool."""
        images = state.get("images")
        self.images = None if images is None else torch.cat([images, images[:1]])
        self.count = state.get("count", torch.zeros(1, dtype=torch.long)).clone()


def _per_image(values: Tensor) -> Tensor:
    """Returns a vector in a shape that broadcasts over the channels, rows and columns of images."""
    return values[:, None, None, None]
