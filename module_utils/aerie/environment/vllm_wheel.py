"""The vLLM wheel that is not in a lock: from the index with a folder for each commit, from a file or an address."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple
from urllib.parse import urljoin

from ansible.module_utils.aerie.distributions.names import normalize
from ansible.module_utils.aerie.environment import network, wheel_integrity
from ansible.module_utils.aerie.environment.file_digest import file_digest
from ansible.module_utils.aerie.environment.network import Network, NoSuchFileRefusal, WheelRefusal
from ansible.module_utils.aerie.environment.wheel_name import Name, file_of, is_of, parse_name
from ansible.module_utils.aerie.shared.hold import hold, hold_at_once

INDEX = "https://wheels.vllm.ai"
COMMIT, SHA256, VARIANT = re.compile(r"[0-9a-f]{40}"), re.compile(r"[0-9a-f]{64}"), re.compile(r"cu\d{3}|cpu")

METADATA = re.compile(r"[^/]+\.dist-info/METADATA")


@dataclass(frozen=True)
class Source:
    """Where the wheel comes from. The channel is `nightly` (index, commit, variant) or `wheel` (location)."""

    channel: str
    distribution: str = "vllm"
    machine: str = "x86_64"
    # Versions of Python that the lock is for, as `>=3.12,<3.13`; empty for any.
    python: str = ""
    # The oldest C library of the stack's hosts, as `2.31`; empty for any.
    glibc: str = ""
    # The CUDA version that the lock's torch brings; empty for CPU.
    cuda: str = ""
    index_url: str = INDEX
    commit: str = ""
    variant: str = ""
    location: str = ""
    sha256: str = ""


class Wheel(NamedTuple):
    """A wheel on this host."""

    path: Path
    version: str
    sha256: str


def source_of(request: Mapping[str, Any]) -> Source | None:
    """The source that an inventory asks for, None for a release, which is in the lock. Raises `WheelRefusal`."""
    channel = str(request.get("channel") or "release")
    known = [str(name) for name in request.get("channels") or ("release", "nightly", "wheel")]
    if channel not in known:
        wanted = f"{' or '.join(known)}, as the lock of this stack is made for"
        raise WheelRefusal(f"vllm_channel: {channel}", wanted, "set vllm_channel or aerie_stack_name (docs/stacks.md)")
    if channel == "release":
        return None
    values = {name: str(request.get(name) or "") for name in Source.__dataclass_fields__ if request.get(name)}
    source = Source(**{**values, "channel": channel, "index_url": (values.get("index_url") or INDEX).rstrip("/")})
    major = source.cuda.split(".")[0]
    faults = [
        (
            bool(source.sha256) and not SHA256.fullmatch(source.sha256),
            "vllm_sha256",
            source.sha256,
            "64 hex digits, small letters",
        ),
    ]
    if channel == "nightly":
        fits = VARIANT.fullmatch(source.variant) and source.variant[:4] == (f"cu{major}" if major else "cpu")
        wanted = f"a variant for CUDA {major}, which the lock's torch has, as cu{major}9" if major else "cpu"
        faults += [
            (
                not COMMIT.fullmatch(source.commit),
                "vllm_commit",
                source.commit,
                "all 40 hex digits of a commit, small letters",
            ),
            (not fits, "vllm_variant", source.variant, wanted),
        ]
    elif channel == "wheel":
        name = parse_name(file_of(source.location))
        fits = name is not None and _installs(source, name)
        wanted = f"path on the host, or address, of {_kind(source)}, under its full name"
        faults += [
            (not fits, "vllm_wheel", source.location, wanted),
            (not source.sha256, "vllm_sha256", "", "the wheel's digest: sha256sum <file>"),
        ]
    for wrong, variable, found, wants in faults:
        if wrong:
            raise WheelRefusal(f"{variable}: {found or 'not set'}", wants, f"set {variable} (docs/stacks.md)")
    return source


def pin_line(distribution: str, version: str, sha256: str) -> str:
    """The wheel as a lock has it."""
    return f"{normalize(distribution)}=={version} \\\n    --hash=sha256:{sha256}\n"


def find(source: Source, net: Network) -> str:
    """The wheel's address in the folder of a commit. Raises `WheelRefusal`."""
    page = f"{source.index_url}/{source.commit}/{source.variant}/{source.distribution}/metadata.json"
    try:
        content = network.text(net, page)
    except NoSuchFileRefusal as error:
        raise _missing(source, net, error) from error
    try:
        entries = [str(entry["path"]) for entry in json.loads(content)]
    except (ValueError, TypeError, KeyError, RecursionError):
        begin = content.strip().split("\n")[0][: network.HEAD]
        remedy = "a proxy, a login page or a mirror answered in its place: check HTTPS_PROXY and vllm_index_url"
        raise WheelRefusal(f"{page}: no list of wheels, it begins with {begin!r}", "metadata.json", remedy) from None
    fitting = sorted(urljoin(page, path) for path in entries if _fits(source, file_of(f"x://x/{path}")))
    elsewhere = [address for address in fitting if not address.startswith(f"{source.index_url}/")]
    if elsewhere:
        remedy = "the list names wheels outside the index: name the index or a mirror of it in vllm_index_url"
        raise WheelRefusal(f"{page}: lists {', '.join(elsewhere)}", "addresses of that index", remedy)
    if len(fitting) != 1:
        listed = ", ".join(file_of(f"x://x/{path}") for path in entries) or "nothing"
        wanted = f"{_kind(source)}, of g{source.commit[:9]} for {source.variant}, and one alone"
        raise WheelRefusal(f"{page}: lists {listed}", wanted, "correct vllm_commit or vllm_variant, or name a mirror")
    return fitting[0]


def _fits(source: Source, file: str) -> bool:
    name = parse_name(file)
    if name is None or not _installs(source, name):
        return False
    variants = [part for part in name.version.partition("+")[2].split(".") if VARIANT.fullmatch(part)]
    return is_of(name.version, source.commit) and variants in ([], [source.variant])


def _installs(source: Source, name: Name) -> bool:
    """Whether the stack can install a wheel of that name."""
    runs = name.runs_on(source.machine, source.python, source.glibc)
    return runs and name.distribution == normalize(source.distribution)


def _kind(source: Source) -> str:
    """Words for a wheel that the stack can install."""
    python = f", Python {source.python}" if source.python else ""
    glibc = f", glibc {source.glibc}" if source.glibc else ""
    return f"a wheel of {source.distribution} for {source.machine}{python}{glibc}"


def _missing(source: Source, net: Network, error: NoSuchFileRefusal) -> WheelRefusal:
    """The refusal that says whether the index lacks the list, the variant or the whole commit."""
    wanted = f"the wheel of commit {source.commit} for {source.variant}"
    try:
        links = network.text(net, f"{source.index_url}/{source.commit}/")
    except WheelRefusal:
        remedy = (
            "it may not be on the main branch, not built yet, or expired: correct vllm_commit, name a mirror that "
            "kept it in vllm_index_url, or use the channel wheel with a file"
        )
        return WheelRefusal(f"{error.found}: the index has nothing for this commit", wanted, remedy)
    variants = sorted(set(re.findall(r'href="(cu\d{3}|cpu)/"', links)))
    if source.variant in variants:
        remedy = "a mirror needs metadata.json too: add it, name another in vllm_index_url, or use the channel wheel"
        found = f"{error.found}: this commit has {source.variant}, but not its list"
        return WheelRefusal(found, "metadata.json", remedy)
    text = f"{error.found}: this commit has the variants {', '.join(variants) or '(none)'}"
    return WheelRefusal(text, wanted, "correct vllm_variant, or use the channel wheel with a file")


def obtain(source: Source, folder: Path, version: str, variables: Mapping[str, str]) -> Wheel:
    """Put the wheel into a folder, as the only one of its distribution there.

    A file that already has the source's digest (and `version`) is used as it is, without a network. A download gets
    its final name only when it is complete, a wheel, and has the digest. Raises `WheelRefusal` or `OSError`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if source.sha256:
        for path in _wheels(source, folder):
            name = parse_name(path.name)
            if name and version in ("", name.version) and file_digest(path) == source.sha256:
                return Wheel(path, name.version, source.sha256)
    _sweep(folder)
    net = Network(variables)
    address = find(source, net) if source.channel == "nightly" else source.location
    handle, scratch = tempfile.mkstemp(dir=str(folder), prefix=".wheel-")
    part = Path(scratch)
    try:
        hold(handle)
        _copy(net, address, part)
        digest = file_digest(part)
        if source.sha256 and digest != source.sha256:
            raise WheelRefusal(
                f"{address} has sha256 {digest}", f"sha256 {source.sha256}",
                "the file has changed since its digest was recorded: find out why before recording the new digest",
            )  # fmt: skip
        built = _version_inside(part, address)
        if not source.sha256:
            # Its digest will be recorded, and demanded from then on.
            wheel_integrity.prove(part, address, source.cuda)
        if version and built != version:
            raise WheelRefusal(f"{address} is version {built}", version, "correct the recorded version and digest")
        final = folder / file_of(address)
        for path in _wheels(source, folder):
            path.unlink()
        part.chmod(0o644)
        part.replace(final)
    finally:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
        os.close(handle)
    return Wheel(final, built, digest)


def _wheels(source: Source, folder: Path) -> Iterator[Path]:
    for path in sorted(folder.glob("*.whl")):
        name = parse_name(path.name)
        if name and name.distribution == normalize(source.distribution):
            yield path


def _sweep(folder: Path) -> None:
    """Remove the files of killed downloads; a running download has a hold on its file."""
    for path in folder.glob(".wheel-*"):
        with contextlib.suppress(OSError), path.open("rb") as stream:
            if hold_at_once(stream):
                path.unlink()


def _copy(net: Network, address: str, part: Path) -> None:
    if address.startswith(("http://", "https://")):
        network.save(net, address, part)
        return
    path = address[len("file://") :] if address.startswith("file://") else address
    try:
        shutil.copyfile(path, str(part))
    except OSError as error:
        raise WheelRefusal(f"{path}: {error.strerror}", "a wheel on the host", "correct vllm_wheel") from error


def _version_inside(path: Path, address: str) -> str:
    """The version in the wheel's metadata, which must be that of its file name. Raises `WheelRefusal`."""
    parsed = parse_name(file_of(address))
    try:
        with zipfile.ZipFile(str(path)) as archive:
            metadata = next(name for name in archive.namelist() if METADATA.fullmatch(name))
            headers = archive.read(metadata).decode("utf-8", "replace").split("\n\n")[0]
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, StopIteration, OSError) as error:
        remedy = "try again; where it happens again, the proxy or the mirror holds a damaged copy"
        raise WheelRefusal(f"{address}: not an intact wheel ({error})", "a wheel", remedy) from error
    fields = dict(line.split(": ", 1) for line in headers.splitlines() if ": " in line)
    distribution, version = normalize(fields.get("Name", "")), fields.get("Version", "")
    if parsed is None or (distribution, version) != parsed[:2]:
        remedy = "the file was renamed or replaced: use the wheel as it was built"
        raise WheelRefusal(f"{address} holds {distribution} {version}", "what its name says", remedy)
    return version
