"""The demo as its user starts it, in a browser and through its interface for programs."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec

import pytest

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("gradio") is None, reason="no gradio")]
CLIENT = """
import sys
from gradio_client import Client
from PIL import Image

path = Client(sys.argv[1], verbose=False).predict(5, 3.0, 1, 0.0, 1.0, api_name="/image")
print(Image.open(path if isinstance(path, str) else path["path"]).size)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Serves the demo of a GAN with three classes; returns its address and the command."""
    from lightning.pytorch import Trainer

    from lit_gans.config.registry import gans
    from tests.tiny import SMALL, WIDTHS

    folder = tmp_path_factory.mktemp("demo") / "gan_photos/version_0"
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False)
    trainer = Trainer(accelerator="cpu", max_steps=0, **quiet)
    trainer.strategy.connect(gans()["gan"](**SMALL, **WIDTHS, num_classes=3))
    trainer.save_checkpoint(folder / "checkpoints/last.ckpt")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [f"checkpoint={folder}", f"port={port}", "directions=2", "data=digits", "data.image_size=16"]
    command = [sys.executable, "-m", "lit_gans", "demo", *options]
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, env=os.environ | {"GRADIO_ANALYTICS_ENABLED": "False"}) as process:
        try:
            for _ in range(200):
                try:
                    urllib.request.urlopen(address).close()
                    break
                except OSError:
                    assert process.poll() is None, "the demo ended"
                    time.sleep(0.5)
            yield address, command
        finally:
            process.kill()


@pytest.mark.skipif(BROWSER is None, reason="no browser")
def test_a_browser_shows_the_controls_and_the_images(served):
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000", "--dump-dom"]
    page = subprocess.run([*command, served[0]], capture_output=True, text=True, timeout=200).stdout
    for label in ("gan_photos", "Seed", "Class", "Truncation", "Direction 2", "Walk from A to B", "Real images"):
        assert label in page
    assert "Direction 3" not in page
    assert re.search(r"<img[^>]+src=\"[^\"]*/gradio_api/file=", page), "the image of seed 0"


def test_a_program_gets_the_image(served):
    done = subprocess.run([sys.executable, "-c", CLIENT, served[0]], capture_output=True, text=True, timeout=200)
    assert done.stdout.split("\n")[-2] == "(384, 384)", done.stderr


def test_a_port_that_is_taken_is_named(served):
    done = subprocess.run(served[1], capture_output=True, text=True, timeout=200)
    assert done.returncode == 2
    assert f"port={served[0].rpartition(':')[2]}: " in done.stderr
