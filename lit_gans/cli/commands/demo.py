"""`lit-gans demo checkpoint=PATH`: serves a web page with seeds, classes, truncation, directions and walks.

Examples:
    lit-gans demo checkpoint=outputs/dcgan_digits/version_0
    lit-gans demo checkpoint=outputs/dcgan_digits/version_0 port=8000 directions=8
    lit-gans demo checkpoint=outputs/dcgan_digits/version_0 host=0.0.0.0
"""

from __future__ import annotations

from lit_gans.checkpoints.locate import find_checkpoint
from lit_gans.cli.checkpoint import sampler
from lit_gans.common.errors import refusing
from lit_gans.demo.app import app


def demo(checkpoint: str, port: int = 7860, host: str = "127.0.0.1", directions: int = 5, share: bool = False) -> None:
    """Serves a web page to explore a generator until Ctrl-C is pressed. Needs the extra `demo-app`.

    Args:
        checkpoint: path of a checkpoint, of a run folder or of a folder that `lit-gans export` wrote; zoo/NAME; or
            hf://owner/name. For a run folder, the best checkpoint is used, or else the last checkpoint.
        port: port of the server.
        host: network interface of the server; 0.0.0.0 also serves the page to other machines.
        directions: number of sliders for directions.
        share: whether to also serve the page for a week under a public address of Gradio, which downloads a program.
    """
    module = sampler(checkpoint, find_checkpoint(checkpoint))
    with refusing(f"port={port}"):
        page = app(module, checkpoint, directions)
        page.launch(server_name=host, server_port=port, share=share, show_error=True)
