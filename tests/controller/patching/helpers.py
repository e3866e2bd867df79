"""Small wheels and series, and environments made of them."""

from __future__ import annotations

import base64
import difflib
import hashlib
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible.module_utils.aerie.distributions.installed import sha256
from ansible.module_utils.aerie.patching.engine import run
from ansible.module_utils.aerie.patching.request import Request, Result
from ansible.module_utils.aerie.patching.series import Series, from_raw


def body(name: str, lines: int = 30) -> bytes:
    """Python source with a line of its own at every number."""
    return "".join(f"{name}_{number} = {number}\n" for number in range(1, lines + 1)).encode()


PRISTINE: dict[str, bytes] = {
    "demo/__init__.py": b"",
    "demo/engine.py": body("engine"),
    "demo/worker.py": body("worker"),
    "demo/sub/__init__.py": b"",
    "demo/sub/deep.py": body("deep"),
}


def record_line(path: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(content)}\n"


def wheel_files(name: str, version: str, files: dict[str, bytes]) -> dict[str, bytes]:
    """All files that a wheel installs, RECORD included."""
    info = f"{name}-{version}.dist-info"
    everything = dict(files)
    everything[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n".encode()
    everything[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(record_line(path, content) for path, content in sorted(everything.items()))
    everything[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    return everything


def build_wheel(folder: Path, name: str, version: str, files: dict[str, bytes]) -> Path:
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as packed:
        for member, content in wheel_files(name, version, files).items():
            packed.writestr(member, content)
    return path


def lay_out(root: Path, name: str, version: str, files: dict[str, bytes], python: str = "python3.11") -> Path:
    """Lay a distribution into an environment as an installer would; return its site-packages."""
    site = root / "lib" / python / "site-packages"
    for path, content in wheel_files(name, version, files).items():
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.write_bytes(content)
    return site


def make_patch(path: str, before: bytes, after: bytes, context: int = 1) -> str:
    """A unified diff with prefixes; line ends as they are in the bytes."""
    old, new = (text.decode().splitlines(keepends=True) for text in (before, after))
    return "".join(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", n=context))


HEADER = "Description: test\nFault: 1\nOrigin: vendor\nForwarded: not-needed\nLicense: Apache-2.0\n\n"


@dataclass
class Maker:
    """Builds a series edit by edit; each edit is made against the result of those before it."""

    distribution: str = "demo"
    version: str = "1.0"
    pristine: dict[str, bytes] = field(default_factory=lambda: dict(PRISTINE))
    now: dict[str, bytes] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    entries: list[dict[str, Any]] = field(default_factory=list)
    modules: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    def edit(self, slug: str, *edits: tuple[str, str, str], **extra: Any) -> Maker:
        """Add a patch of ``(path, old, new)`` replacements; its probes look for the first new line."""
        name = f"{len(self.entries) + 1:04d}-{slug}"
        texts, greps, seen = "", [], {}
        for path, old, new in edits:
            before = self.now.get(path, self.pristine[path])
            seen.setdefault(path, before)
            assert old.encode() in before, (path, old)
            self.now[path] = before.replace(old.encode(), new.encode(), 1)
            first = new.splitlines()[0] if new else ""
            greps.append({"file": path, "pattern": f"^{first.replace('(', '[(]').replace(')', '[)]')}\\r?$"})
        for path, before in seen.items():
            texts += make_patch(path, before, self.now[path])
        self.texts[name] = HEADER + texts
        entry = {
            "id": name,
            "title": slug,
            "faults": [1],
            "breaks": "silent: test",
            "since": "vllm 0.12",
            "upstream": "none",
            "drop_when": "demo >= 2",
            "test": "tests/controller/patching/conftest.py::body",
            "probes": {"grep": greps},
        }
        entry.update(extra)
        self.entries.append(entry)
        return self

    def module(self, target: str, content: bytes) -> Maker:
        self.modules[f"modules/{Path(target).name}"] = (target, content)
        return self

    def raw(self, name: str = "") -> dict[str, Any]:
        touched = sorted(set(self.now))
        return {
            "name": name or f"{self.distribution}-{self.version}",
            "document": {
                "distribution": self.distribution,
                "version": self.version,
                "files": {path: sha256(self.pristine[path]) for path in touched},
                "modules": [{"source": source, "target": target} for source, (target, _) in self.modules.items()],
                "patches": self.entries,
            },
            "texts": self.texts,
            "modules": {source: content.decode() for source, (_, content) in self.modules.items()},
        }

    def series(self) -> Series:
        return from_raw(self.raw())

    def desired(self) -> dict[str, bytes]:
        return {**self.now, **dict(self.modules.values())}


def standard() -> Maker:
    """Three patches over three files, two on the same file, and one module."""
    maker = Maker()
    maker.edit("first", ("demo/engine.py", "engine_3 = 3\n", "engine_3 = 33\nengine_3b = 1\n"))
    maker.edit(
        "second", ("demo/worker.py", "worker_9 = 9\n", "worker_9 = 99\n"), ("demo/engine.py", "engine_20 = 20\n", "")
    )
    maker.entries[1]["probes"]["grep"] = [
        {"file": "demo/worker.py", "pattern": "^worker_9 = 99$"},
        {"file": "demo/engine.py", "pattern": "^engine_20 = ", "absent": True},
    ]
    maker.edit("third", ("demo/sub/deep.py", "deep_1 = 1\n", "from demo.added import VALUE\n"))
    return maker.module("demo/added.py", b"VALUE = 7\n")


def snapshot(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Every file and link below ``folder``, our private directory left out."""
    seen = {}
    for path in sorted(folder.rglob("*")):
        if ".aerie" in path.parts:
            continue
        name = path.relative_to(folder).as_posix()
        if path.is_file():
            seen[name] = ("file", path.read_bytes())
        elif path.is_dir():
            seen[name] = ("dir", b"")
    return seen


class Env:
    """An environment with the distribution ``demo``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.site = lay_out(root, "demo", "1.0", PRISTINE)
        (root / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.11.7\n")
        (root / "lib64").symlink_to("lib")
        self.pristine = snapshot(self.site)

    def run(self, maker: Maker | None = None, **options: Any) -> Result:
        series = [maker.series()] if maker else []
        options.setdefault("environment", self.root)
        options.setdefault("hold_wait_s", 0.2)
        return run(Request(series=series, **options))

    def read(self, path: str) -> bytes | None:
        file = self.site / path
        return file.read_bytes() if file.is_file() else None

    def assert_desired(self, maker: Maker) -> None:
        for path, content in {**maker.pristine, **maker.desired()}.items():
            assert self.read(path) == content, path
        assert_clean(self.root)

    def assert_pristine(self) -> None:
        now = snapshot(self.site)
        other = {name for name in {*now, *self.pristine} if now.get(name) != self.pristine.get(name)}
        assert not other, f"not pristine: {sorted(other)}"
        assert_clean(self.root)


def assert_clean(root: Path) -> None:
    """No rejects, backups or half-written files anywhere."""
    bad = [
        p
        for p in root.rglob("*")
        if p.suffix in (".rej", ".orig", ".tmp", ".partial", ".new", ".old") or "stage" in p.name
    ]
    assert not bad


def states(result: Result) -> dict[str, str]:
    return {entry["id"]: entry["state"] for entry in result.data["patches"]}


def failed(result: Result) -> list[str]:
    return [check.name for check in result.checks.failed]
