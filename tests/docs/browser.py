"""Opens every page of a built site in one headless browser, and returns what is wrong with them as it shows them."""

from __future__ import annotations

import http.server
import json
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
LOOK = Path(__file__).parent / "look.html"
_COLLECT = b"""<script>
window.errors = [];
const place = (target) => target.src || target.href;
window.addEventListener("error", (event) => errors.push(event.message || `not found: ${place(event.target)}`), true);
window.addEventListener("unhandledrejection", (event) => errors.push(String(event.reason)));
console.error = (...said) => errors.push(said.join(" "));
</script>"""


def look(site: Path, profile: Path, queries: list[str], widths: tuple[int, ...] = (1280, 390)) -> dict[str, Any]:
    """Returns the faults of the pages at these widths (`seen`), and the first page that each search finds (`hits`).

    Args:
        site: folder of the built site.
        profile: empty folder for the browser.
        queries: what is searched for.
        widths: of the window, in pixels.
    """
    pages = sorted(str(path.relative_to(site)).removesuffix("index.html") for path in site.rglob("*.html"))
    task = {"pages": pages, "widths": widths, "queries": queries}
    told: queue.Queue[dict[str, Any]] = queue.Queue()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(site, task, told))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000", f"--user-data-dir={profile}"]
    command = [str(BROWSER), *flags, "--remote-debugging-port=0", f"http://127.0.0.1:{server.server_port}/look"]
    browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return told.get(timeout=500)
    finally:
        browser.kill()
        browser.wait()
        server.shutdown()
        server.server_close()


def _handler(site: Path, task: dict[str, Any], told: queue.Queue[dict[str, Any]]) -> type:
    """Returns the handler of a server of the site whose pages collect their errors."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(site))

        def do_GET(self) -> None:
            name = self.path.partition("?")[0]
            file = site / name.lstrip("/")
            file = file / "index.html" if file.is_dir() else file
            if name == "/look":
                self.answer(LOOK.read_bytes(), "text/html")
            elif name == "/to_look_at":
                self.answer(json.dumps(task).encode(), "application/json")
            elif file.suffix == ".html" and file.exists():
                self.answer(file.read_bytes().replace(b"<head>", b"<head>" + _COLLECT, 1), "text/html; charset=utf-8")
            else:
                super().do_GET()

        def do_POST(self) -> None:
            told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.answer(b"", "text/plain")

        def answer(self, content: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
