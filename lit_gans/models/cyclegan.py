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
from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.noise import Noise
from lit_gans.common.size import sides
from lit_gans.data.contracts import Paired, Unpaired
from lit_gans.data.images import to_networks
from lit_gans.networks.cyclegan import BothWays, ResidualTranslator, default_blocks
from lit_gans.networks.patchgan import PatchGAN
from lit_gans.training.batch import Batch
from lit_gans.training.callback import data_of
from lit_gans.training.gan import Kind
from lit_gans.training.losses import Scored, least_squares_discriminator, least_squares_generator
from lit_gans.training.sampling import Weights
from lit_gans.training.schedules import Number, refuse_weights
from lit_gans.training.translator import Direction, Translator, spread


class CycleGAN(Translator):
    """Translates between two domains without pairs: two generators, two patch discriminators, and a way back.

    The defaults follow sections 3, 4 and 7: least squares, the discriminators' losses halved, 10 times the L1 distance
    of an image to what comes back, half of that to what an image of the other domain becomes, a pool of 50 generated
    images, 6 residual blocks or, from 256 pixels on, 9; the paper's batch size is 1. The identity loss is the default
    of the authors' code; the paper has it for paintings (section 5.2). As in that code, norms have no scales and
    shifts, and the generators step first: the discriminators then train on the images of before that step. Both
    generators are `generator`, which one optimizer steps: `generator.a_to_b` and `generator.b_to_a`. `discriminator_a`
    and `discriminator_b` judge the images of A and B. The data need no pairs: `data=unpaired` or `emoji_fonts`; those
    of other data are not used.

    The pool holds images of all ranks, and each rank has the same, so that two ranks train on what one process does.

    Args:
        cycle_weight: weight of the cycle consistency (equation 2); may be a schedule.
        identity_weight: weight of the identity loss (section 5.2) relative to `cycle_weight`; 0 leaves it out.
        pool_size: number of generated images of each domain in the pool; 0 shows the discriminators new ones only.
        blocks: number of residual blocks of a generator; null uses 6, or 9 from 256 pixels on.
        **kwargs: see `Translator` and `AdversarialModule`.
    """

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

    def setup(self, stage: str) -> None:
        super().setup(stage)
        data = data_of(self.trainer)
        if data is not None and not isinstance(data, Unpaired | Paired):
            raise RefusedInput("cyclegan needs images of two domains: use data=unpaired, two folders.")

    # ---- the batch: `input` has images of A, `image` those of B; each has its own crop

    def sample_noise(self, noise: Noise, num: int) -> Batch:
        return {"jitter": noise.uniform("jitter", num, 6), "pool": noise.uniform("pool", num, 4)}

    def dummy_batch(self, num: int) -> Batch:
        shape = num, self.channels, *sides(self.image_size)
        return {"input": torch.empty(shape), "image": torch.empty(shape)}

    def augment(self, batch: Batch) -> Batch:
        of_image, of_input = batch["jitter"].chunk(2, 1)
        image, given = self._jittered(batch["image"], of_image), self._jittered(batch["input"], of_input)
        return {**batch, "image": image, "input": given}

    def generate(self, generator: nn.Module, batch: Batch) -> Tensor:
        """Translates `input` to B; without it, `image` to A."""
        name = "input" if "input" in batch else "image"
        images: tuple[Tensor, ...] = generator(*(batch[name] if name == each else None for each in ("input", "image")))
        return images[0]

    def with_fake(self, batch: Batch) -> Batch:
        """Returns a batch with the translations to B, `fake`, and to A, `fake_input`."""
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
        """Returns a batch whose translations are exchanged for earlier ones, with the same pool on every rank."""
        if not self.pool_size:
            return batch
        backend = self.backend
        numbers = backend.gather(batch["pool"]).chunk(2, 1)
        for name, pool, own in zip(("fake", "fake_input"), self._pools, numbers, strict=True):
            exchanged = pool.exchange(backend.gather(batch[name]), own)
            batch = {**batch, name: exchanged.chunk(backend.world_size)[backend.rank]}
        return batch

    def on_train_start(self) -> None:
        super().on_train_start()
        if self.trainer.global_step == 0:
            self._pools = self._new_pools()  # not those of a training before

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
        image, given, fake_input = batch["image"], batch["input"], batch["fake_input"]
        on_a, on_b = self.discriminator_a(fake_input), self.discriminator_b(fake)
        loss = least_squares_generator(on_a) + least_squares_generator(on_b)
        cycle = self.now(self.cycle_weight)
        image_again, given_again = self.generator(fake_input, fake)
        distance = functional.l1_loss(image_again, image) + functional.l1_loss(given_again, given)
        loss = loss + cycle * distance
        if self.identity_weight:
            kept_image, kept_given = self.generator(image, given)
            distance = functional.l1_loss(kept_image, image) + functional.l1_loss(kept_given, given)
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
        name = "input" if direction == "a_to_b" else "image"
        starts = range(0, len(inputs), batch_size)
        parts = (self.to_generator(inputs[start : start + batch_size]) for start in starts)
        return self.decode_batches(({name: part} for part in parts), weights)

    def exchange_domains(self) -> None:
        """Exchanges A and B: what translated A to B translates B to A from now on."""
        for both in (self.generator, self.averaged_generator):
            if isinstance(both, BothWays):
                both.a_to_b, both.b_to_a = both.b_to_a, both.a_to_b
        self.discriminator_a, self.discriminator_b = self.discriminator_b, self.discriminator_a

    def sampling_batch_like(self, batch: Batch, seed: int) -> Batch:
        return {name: batch[name] for name in ("input", "image")}

    def sample_grid(self, num: int, seed: int, data: Any = None) -> tuple[Tensor, int]:
        """Returns six rows: images of A, their translations, and these translated back; the same for images of B."""
        columns = max(1, num // 6)
        rows = []
        for name, there, back in (("input", *self.directions), ("image", *self.directions[::-1])):
            real = to_networks(spread(self.held_out(data)[name], columns)).add(1).div(2)
            fake = self.translate(real, direction=there)
            rows += [real, fake.cpu(), self.translate(fake, direction=back).cpu()]
        return torch.cat(rows), columns


class ImagePool:
    """Exchanges generated images for earlier ones, which the discriminators see beside the new ones (Shrivastava et al.
    2017).

    The first `size` images are stored and returned. From then on, each image is returned with probability 1/2;
    otherwise it takes the place of a random stored image, which is returned instead. The state is on the device, so
    that no exchange waits for it, and is part of a checkpoint.

    Args:
        size: number of stored images.

    Attributes:
        images: (size, c, h, w), None before the first exchange; those from `count` on are not used yet.
        count: number of stored images, a scalar.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.images: Tensor | None = None
        self.count = torch.zeros(1, dtype=torch.long)

    def exchange(self, new: Float[Tensor, "n c h w"], numbers: Float[Tensor, "n 2"]) -> Float[Tensor, "n c h w"]:
        """Returns new or stored images, one after the other.

        Args:
            new: generated images, without a graph.
            numbers: uniform in [0, 1): whether an image is exchanged, and for which.
        """
        if self.images is None:
            self.images = new.new_zeros(self.size, *new.shape[1:])
        images, count = self.images, self.count = self.images.to(new), self.count.to(new.device)
        seen = []
        for image, number in zip(new[:, None], numbers, strict=True):
            full = count == self.size
            place = torch.where(full, (number[1] * self.size).long(), count)
            stored = images.index_select(0, place)
            stays, leaves = full & (number[0] < 0.5), full & (number[0] >= 0.5)
            seen.append(torch.where(leaves, stored, image))
            images.index_copy_(0, place, torch.where(stays, stored, image))
            count += ~full
        return torch.cat(seen)

    def state_dict(self) -> dict[str, Tensor]:
        """Returns a copy of the state on the CPU; empty before the first exchange."""
        return {} if self.images is None else {"images": self.images.cpu().clone(), "count": self.count.cpu().clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restores a state; an empty one empties the pool."""
        self.images, self.count = state.get("images"), state.get("count", torch.zeros(1, dtype=torch.long))
