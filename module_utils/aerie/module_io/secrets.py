"""What of variables and addresses is a secret: Ansible keeps it out of results, reports and the host's log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Mapping, Protocol
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# All that stands before the last @ of an address's host: a password may hold an @ that nobody encoded.
USERINFO = re.compile(r"://([^/\s]+)@")
# A proxy may be named without http://.
BARE_USERINFO = re.compile(r"^(?!\w+://)([^/\s]+)@")
# The parameters of an address that is signed.
SIGNED = re.compile(r"://\S+\?(\S+)")
NAMES = re.compile(r"(PASSWORD|PASSWD|PASSPHRASE|TOKEN|SECRET|_KEY)$", re.IGNORECASE)
# Variables of a host that an installer obeys and may quote.
READ = re.compile(r"(UV|PIP)_.*|.*_proxy", re.IGNORECASE)
# Where the name is the secret, sites write one of these for a password.
NO_PASSWORD = ("", "x-oauth-basic")


class Masking(Protocol):
    """What `AnsibleModule` has: the strings that it takes out of whatever it says."""

    no_log_values: set[str]


def of_variables(variables: Mapping[str, object]) -> set[str]:
    """Passwords, tokens and the parameters of signed addresses in the values of environment variables."""
    found: set[str] = set()
    for name, value in variables.items():
        text, user = str("" if value is None else value), name[: -len("USERNAME")] if name.endswith("_USERNAME") else ""
        # A name without a password is a token.
        if NAMES.search(name) or (user and not variables.get(f"{user}PASSWORD")):
            found |= _forms(text)
        found |= of_addresses([text])
        if name.lower().endswith("_proxy"):
            found |= _of_userinfo(BARE_USERINFO.findall(text))
    return found


def of_addresses(texts: Iterable[str]) -> set[str]:
    """Passwords, and parameters, of the addresses in texts."""
    found: set[str] = set()
    for text in texts:
        found |= _of_userinfo(USERINFO.findall(text))
        for parameters in SIGNED.findall(text):
            found |= _forms(parameters)
    return found


def hide(module: Masking, variables: Mapping[str, object], host: Mapping[str, str], *addresses: object) -> None:
    """Let a module keep secret parts alone to itself, instead of every value of its options that have `no_log`.

    `variables` come from the inventory, `host` is the environment of this process. Without `no_log` the options would
    stand in the host's log before anything of ours runs; with it alone, a cache's path or a plain `1` would be taken
    out of every message.
    """
    module.no_log_values.clear()
    module.no_log_values |= of_variables(variables)
    module.no_log_values |= of_variables({name: value for name, value in host.items() if READ.fullmatch(name)})
    module.no_log_values |= of_addresses(str(one) for one in addresses if one)


def addresses_of(wheel: Mapping[str, Any]) -> tuple[object, object]:
    """The two addresses that may stand in a request for vLLM's wheel."""
    return wheel.get("index_url"), wheel.get("location")


def _of_userinfo(texts: Iterable[str]) -> set[str]:
    return {form for text in texts for part in _parts(text) for form in _forms(part)}


def _parts(userinfo: str) -> Iterator[str]:
    """The pair, and the secret one of the two: installers quote addresses with the other one."""
    name, _, password = userinfo.partition(":")
    yield userinfo
    yield name if password in NO_PASSWORD else password


def _forms(text: str) -> set[str]:
    """A secret as it is written, and as it may be quoted."""
    plain = unquote(text)
    return {form for form in (text, plain, quote(plain, safe="")) if form}
