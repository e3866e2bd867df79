"""Loopback servers: one laid out as the index of wheels by commit is, and one that is a proxy."""

from __future__ import annotations

import contextlib
import json
import platform
import ssl
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from .conftest import make_wheel

COMMIT = "7291d1b288558d48508e1a17c37b0aa170332264"
VERSION = "0.16.0rc2.dev388+g7291d1b28"
TAG = f"cp38-abi3-manylinux_2_17_{platform.machine()}"


class Served(BaseHTTPRequestHandler):
    """Files of a folder; `faults` says for an ending of a path what goes wrong there."""

    root: Path
    faults: dict[str, str]
    asked: list[str]
    released: threading.Event

    def do_GET(self) -> None:
        """One file, or the fault that is asked for."""
        # What comes to a proxy names the host too.
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self.asked.append(self.path)
        fault = next((what for ending, what in self.faults.items() if path.endswith(ending)), "")
        file = self.root / path.lstrip("/")
        if file.is_dir():
            file /= "index.html"
        if fault == "hang":
            self.released.wait(20)
            return
        if fault.isdigit() or not file.is_file():
            self.send_error(int(fault or 404))
            return
        body = b"<!DOCTYPE html>\n<html>Please log in</html>\n" if fault == "html" else file.read_bytes()
        self.send_response(200)
        page = fault == "html" or file.suffix == ".html"
        self.send_header("Content-Type", "text/html" if page else "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if fault.startswith("cut") else body)
        if fault == "cut and hang":
            self.wfile.flush()
            self.released.wait(20)

    def log_message(self, *_: Any) -> None:
        """Silence."""


class Server:
    """A folder on a port of this machine."""

    def __init__(self, root: Path, tls: ssl.SSLContext | None = None) -> None:
        root.mkdir(exist_ok=True)
        self.root, self.faults, self.asked = root, dict[str, str](), list[str]()
        self.released = threading.Event()
        handler = type("Handler", (Served,), {
            "root": root, "faults": self.faults, "asked": self.asked, "released": self.released,
        })  # fmt: skip
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.http.daemon_threads = True
        if tls:
            self.http.socket = tls.wrap_socket(self.http.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.http.server_port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        """Serve until the end of the block."""
        thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.released.set()
            self.http.shutdown()
            self.http.server_close()
            thread.join()


def publish(root: Path, commit: str, variants: list[str], version: str = VERSION, **more: Any) -> str:
    """Put a small real wheel named vllm into a commit's folder and lists of it into its variants'; its sha256.

    As the index does: the wheels lie in the commit's folder; each variant has a page of links without hashes, and
    metadata.json, both with relative addresses; a variant may be an alias of wheels whose names have none.
    """
    folder = root / commit
    folder.mkdir(parents=True, exist_ok=True)
    digest = make_wheel(folder, "vllm", version, tag=TAG, **more)
    file = f"vllm-{version}-{TAG}.whl"
    for variant in variants:
        page = folder / variant / "vllm"
        page.mkdir(parents=True, exist_ok=True)
        address = "../../" + urllib.parse.quote(file)
        (page / "index.html").write_text(
            f'<!DOCTYPE html>\n<html><body>\n<a href="{address}">{file}</a><br/>\n</body></html>\n'
        )
        entry = {"package_name": "vllm", "version": version, "platform_tag": TAG, "variant": None, "filename": file}
        # A wheel for another kind of machine stands in the same list.
        other = {"package_name": "vllm", "path": address.replace(platform.machine(), "riscv64")}
        (page / "metadata.json").write_text(json.dumps([{**entry, "path": address}, other]))
    links = sorted(p.name for p in folder.iterdir() if p.is_dir())
    (folder / "index.html").write_text("".join(f'<a href="{name}/">{name}/</a><br/>\n' for name in links))
    return digest
