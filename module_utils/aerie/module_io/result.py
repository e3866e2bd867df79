"""The result form that every Aerie module gives back under the key ``aerie``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ansible.module_utils.aerie.shared.checks import failure_message

if TYPE_CHECKING:
    from ansible.module_utils.aerie.shared.checks import Checks


class ResultSink(Protocol):
    """The two ways out of an Ansible module; ``AnsibleModule`` has them."""

    def exit_json(self, **kwargs: Any) -> Any:
        """End well."""

    def fail_json(self, msg: str, **kwargs: Any) -> Any:
        """End with a failure."""


def finish(
    module: ResultSink,
    section: str,
    checks: Checks,
    changed: bool,
    data: dict[str, Any],
    **result: Any,
) -> None:
    """End ``module``: well when every check passes, as failed when a check fails or none was run."""
    aerie = {"section": section, "checks": checks.as_list(), "data": data}
    if checks.failed or not len(checks):
        module.fail_json(msg=failure_message(checks), changed=changed, aerie=aerie, **result)
        return
    module.exit_json(changed=changed, aerie=aerie, **result)
