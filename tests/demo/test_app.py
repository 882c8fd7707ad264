"""The demo in a browser, and through its interface for programs."""

import re
import shutil
import subprocess

import numpy as np
import pytest

gradio = pytest.importorskip("gradio")

from lit_gans.demo.app import app  # noqa: E402

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.filterwarnings("ignore")  # of gradio and its web server


@pytest.fixture
def served(tiny_gan):
    """Serves the demo of a GAN with three classes; returns its address."""
    blocks = app(tiny_gan("gan", num_classes=3), "A test of the demo", num_directions=2)
    _, address, _ = blocks.launch(prevent_thread_lock=True, quiet=True, server_name="127.0.0.1")
    yield address
    blocks.close()


@pytest.mark.skipif(BROWSER is None, reason="no browser")
def test_a_browser_shows_the_controls_and_the_image(served):
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
    page = subprocess.run([*command, served], capture_output=True, text=True, timeout=120).stdout
    for label in ("A test of the demo", "Seed", "Class", "Truncation", "Direction 2", "Walk from A to B"):
        assert label in page
    assert "Direction 3" not in page
    assert re.search(r"<img[^>]+src=\"[^\"]*/gradio_api/file=", page), "the image of seed 0"


def test_a_program_gets_the_image(served):
    from gradio_client import Client
    from PIL import Image

    client = Client(served, verbose=False)
    path = client.predict(5, 3.0, 1, 0.0, 1.0, api_name="/image")
    with Image.open(path if isinstance(path, str) else path["path"]) as image:
        assert np.asarray(image).shape[:2] == (384, 384)
