"""`lit-gans demo checkpoint=PATH`: serves a web page with seeds, classes, truncation, directions and walks.

Examples:
    lit-gans demo checkpoint=zoo/dcgan_avatars
    lit-gans demo checkpoint=zoo/dcgan_avatars data=avatars data.num_images=18
    lit-gans demo checkpoint=outputs/dcgan_digits/version_0 port=8000 host=0.0.0.0 directions=8
"""

from __future__ import annotations

import torch
from jaxtyping import UInt8
from torch import Tensor

from lit_gans.checkpoints.locate import find_checkpoint
from lit_gans.cli.checkpoint import refuse_other_images, sampler
from lit_gans.common.errors import refusing
from lit_gans.data.base import ImageData
from lit_gans.demo.app import app

_NUM_REAL = 18  # maximum number of real images on the page


def demo(
    checkpoint: str,
    data: ImageData | None = None,
    port: int = 7860,
    host: str = "127.0.0.1",
    directions: int = 5,
    share: bool = False,
) -> None:
    """Serves a web page to explore a generator until Ctrl-C is pressed. Needs the extra `demo-app`.

    Args:
        checkpoint: path of a checkpoint, of a run folder or of a folder that `lit-gans export` wrote; zoo/NAME; or
            hf://owner/name. For a run folder, uses the best checkpoint, or else the last.
        data: real images to show beside the generated ones; null shows none.
        port: port of the server.
        host: network interface of the server; 0.0.0.0 also serves the page to other machines.
        directions: number of sliders for directions.
        share: whether to also serve the page for a week under a public address of Gradio, which downloads a program.
    """
    module = sampler(checkpoint, find_checkpoint(checkpoint))
    real = None
    if data is not None:
        refuse_other_images(module, data)
        real = _spread(data, _NUM_REAL)
    with refusing(f"port={port}"):
        page = app(module, checkpoint, directions, real)
        page.launch(server_name=host, server_port=port, share=share, show_error=True)


def _spread(data: ImageData, num: int) -> UInt8[Tensor, "n c h w"]:
    """Returns at most `num` images of the data, evenly spaced, so that they are of several classes."""
    total = len(data.real_labels())
    rows = torch.linspace(0, total - 1, min(num, total)).long().tolist()
    return torch.cat([image for row in rows for image in data.real_batches(1, row, row + 1)])
