"""Fetching over HTTP with the site's proxy, certificates and timeout, and not at all where the site is offline."""

from __future__ import annotations

import base64
import http.client
import re
import socket
import ssl
import urllib.error
import urllib.request
from typing import IO, TYPE_CHECKING, Mapping
from urllib.parse import unquote, urlsplit

from ansible.module_utils.aerie.shared.refusal import Refusal

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT = 30.0
HEAD = 60
FALSE = ("", "0", "false", "no", "off")
# Secrets in an address: a name and a password, and the parameters of a signed one.
SECRET = re.compile(r"(?<=://)[^/\s]+(?=@)|(?<=\.whl\?)\S+?(?=[:,;]?(?:\s|$))")


class WheelRefusal(Refusal):
    """The vLLM wheel cannot be fetched or used; names, passwords and signatures in addresses are left out."""

    def __init__(self, found: str, wanted: str, remedy: str) -> None:
        super().__init__("vLLM wheel", SECRET.sub("***", found), wanted, remedy)


class NoSuchFileRefusal(WheelRefusal):
    """The server says that there is no such file."""


class Network:
    """How this site reaches addresses, by the variables that uv obeys too."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.offline = variables.get("UV_OFFLINE", "").lower() not in FALSE
        self.timeout = _seconds(variables.get("UV_HTTP_TIMEOUT", ""))
        self.certificates = variables.get("SSL_CERT_FILE") or None
        # As curl and uv do it: the lower-case name wins, and ALL_PROXY serves schemes without a proxy of their own.
        named = {name.lower(): value for name, value in variables.items() if name.lower().endswith("_proxy")}
        named.update({name: value for name, value in variables.items() if name.endswith("_proxy")})
        default = named.get("all_proxy", "")
        self.proxies = {scheme: named.get(f"{scheme}_proxy") or default for scheme in ("http", "https")}
        self.without_proxy = named.get("no_proxy", "")

    def open(self, url: str) -> IO[bytes]:
        """The body of an address. Raises `WheelRefusal`. The timeout holds for each wait, reading included."""
        if self.offline:
            raise WheelRefusal(
                f"offline, and {url} is needed", "the file in place, or a network",
                "unset UV_OFFLINE in ml_env_uv_environment, or provision from a bundle",
            )  # fmt: skip
        try:
            response: IO[bytes] = self._opener(url).open(_request(url), timeout=self.timeout)
        except urllib.error.HTTPError as error:
            raise refusal(url, error.code) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self.broken(url, error) from error
        return response

    def _opener(self, url: str) -> urllib.request.OpenerDirector:
        direct = bypasses(urlsplit(url).hostname or "", self.without_proxy)
        proxies = {} if direct else {scheme: proxy for scheme, proxy in self.proxies.items() if proxy}
        context = ssl.create_default_context(cafile=self.certificates)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler(proxies), urllib.request.HTTPSHandler(context=context)
        )
        # Some mirrors and filters refuse Python's default user agent.
        opener.addheaders = [("User-Agent", "aerie")]
        return opener

    def broken(self, url: str, error: Exception) -> WheelRefusal:
        """The refusal for an exception of the network."""
        reason = getattr(error, "reason", error)
        if isinstance(reason, (socket.timeout, TimeoutError)):
            found = f"{url}: no answer for {self.timeout:g} s"
            remedy = "try again, raise UV_HTTP_TIMEOUT, or name a mirror in vllm_index_url"
        elif isinstance(reason, ssl.SSLError):
            found = f"{url}: {reason}"
            remedy = "name the authority's file in SSL_CERT_FILE (ml_env_uv_environment)"
        else:
            found = f"{url}: {reason}"
            remedy = "check the address, HTTPS_PROXY and NO_PROXY (ml_env_uv_environment), or provision from a bundle"
        return WheelRefusal(found, "an answer", remedy)


def _request(url: str) -> urllib.request.Request:
    """The request for an address; its name and password go to its own host, and to no host that it redirects to."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError("not an address of http or https")
    user, at, _ = parts.netloc.rpartition("@")
    plain = url.replace(f"{user}@", "", 1) if at else url
    request = urllib.request.Request(plain)  # noqa: S310  (the scheme was looked at)
    if not at:
        return request
    pair = unquote(user) if ":" in user else f"{unquote(user)}:"
    request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")
    return request


def bypasses(host: str, without_proxy: str) -> bool:
    """Whether NO_PROXY names a host: by its name, by the end of its name, or as one of all hosts (*)."""
    names = [name.strip().lower().lstrip(".") for name in without_proxy.split(",") if name.strip()]
    return "*" in names or any(host == name or host.endswith(f".{name}") for name in names)


def _seconds(text: str) -> float:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) and float(text) else TIMEOUT


def refusal(url: str, code: int) -> WheelRefusal:
    """The refusal for an HTTP error. Storage behind such an index answers 403 for a file that it does not have."""
    kind = NoSuchFileRefusal if code in (403, 404, 410) else WheelRefusal
    remedy = "try again later, or name a mirror in vllm_index_url"
    if code == 401:
        remedy = "put name and password into the address, as https://name:password@host/path"
    elif code == 407:
        remedy = "put name and password into the proxy's address, HTTPS_PROXY (ml_env_uv_environment)"
    elif 300 <= code < 400:
        remedy = "it redirects in circles, or not to a web address: correct vllm_index_url or vllm_wheel"
    return kind(f"{url}: HTTP {code}", "the file", remedy)


def text(network: Network, url: str) -> str:
    """A small text file. Raises `WheelRefusal`."""
    with network.open(url) as response:
        try:
            return response.read(1 << 22).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            raise network.broken(url, error) from error


def save(network: Network, url: str, target: Path) -> None:
    """Download to a file that the caller renames later. Raises `WheelRefusal`, also when the body is cut short."""
    with network.open(url) as response, target.open("wb") as stream:
        headers = getattr(response, "headers", {})
        announced = headers.get("Content-Length") or ""
        kind = headers.get("Content-Type") or "no type"
        try:
            for chunk in iter(lambda: response.read(1 << 20), b""):
                stream.write(chunk)
        except (http.client.IncompleteRead, socket.timeout, ConnectionError) as error:
            raise network.broken(url, error) from error
        size = stream.tell()
    if announced.isdigit() and size != int(announced):
        raise WheelRefusal(
            f"{url}: cut after {size:,} of {int(announced):,} bytes", "the whole file",
            "try again; where it happens again, the proxy or the mirror holds a damaged copy",
        )  # fmt: skip
    with target.open("rb") as stream:
        head = stream.read(HEAD)
    if head[:2] != b"PK":
        raise WheelRefusal(
            f"{url}: {kind}, beginning with {head.decode('utf-8', 'replace').split(chr(10))[0]!r}", "a wheel",
            "a proxy, a login page or a mirror answered in its place: check HTTPS_PROXY and vllm_index_url",
        )  # fmt: skip
