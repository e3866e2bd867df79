"""Secrets in variables and addresses: Ansible masks them in results, reports and the host's log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Mapping, Protocol
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Everything before the last @ of an address's host: a password may contain an @ that is not encoded.
USERINFO = re.compile(r"://([^/\s]+)@")
# The address of a proxy may lack http://.
BARE_USERINFO = re.compile(r"^(?!\w+://)([^/\s]+)@")
# The parameters of a signed address.
SIGNED = re.compile(r"://\S+\?(\S+)")
NAMES = re.compile(r"(PASSWORD|PASSWD|PASSPHRASE|TOKEN|SECRET|_KEY)$", re.IGNORECASE)
# Variables of a host that an installer reads, and may show.
READ = re.compile(r"(UV|PIP)_.*|.*_proxy", re.IGNORECASE)
# Sites write these as the password where the name is the secret.
NO_PASSWORD = ("", "x-oauth-basic")


class Masking(Protocol):
    """The part of `AnsibleModule` that has the strings which it masks in its output."""

    no_log_values: set[str]


def of_variables(variables: Mapping[str, object]) -> set[str]:
    """Passwords, tokens and the parameters of signed addresses in the values of environment variables."""
    found: set[str] = set()
    for name, value in variables.items():
        text, user = str("" if value is None else value), name[: -len("USERNAME")] if name.endswith("_USERNAME") else ""
        # A user name without a password is a token.
        if NAMES.search(name) or (user and not variables.get(f"{user}PASSWORD")):
            found |= _forms(text)
        found |= of_addresses([text])
        if name.lower().endswith("_proxy"):
            found |= _of_userinfo(BARE_USERINFO.findall(text))
    return found


def of_addresses(texts: Iterable[str]) -> set[str]:
    """Passwords and parameters of the addresses in texts."""
    found: set[str] = set()
    for text in texts:
        found |= _of_userinfo(USERINFO.findall(text))
        for parameters in SIGNED.findall(text):
            found |= _forms(parameters)
    return found


def hide(module: Masking, variables: Mapping[str, object], host: Mapping[str, str], *addresses: object) -> None:
    """Have a module mask the secret parts of its options, instead of every value of its options that have `no_log`.

    `variables` come from the inventory, `host` are the variables of this process. Without `no_log` the host's log
    would show the options before this code runs. With `no_log` alone, the path of a cache or a plain `1` would be
    masked in every message.
    """
    module.no_log_values.clear()
    module.no_log_values |= of_variables(variables)
    module.no_log_values |= of_variables({name: value for name, value in host.items() if READ.fullmatch(name)})
    module.no_log_values |= of_addresses(str(address) for address in addresses if address)


def addresses_of(wheel: Mapping[str, Any]) -> tuple[object, object]:
    """The two addresses that a request for vLLM's wheel may have."""
    return wheel.get("index_url"), wheel.get("location")


def _of_userinfo(texts: Iterable[str]) -> set[str]:
    return {form for text in texts for part in _parts(text) for form in _forms(part)}


def _parts(userinfo: str) -> Iterator[str]:
    """Name and password together, and the one that is secret: installers show addresses with the other."""
    name, _, password = userinfo.partition(":")
    yield userinfo
    yield name if password in NO_PASSWORD else password


def _forms(text: str) -> set[str]:
    """A secret as it is written, and with and without percent-encoding."""
    plain = unquote(text)
    return {form for form in (text, plain, quote(plain, safe="")) if form}
