# What our modules use of ansible-core 2.17 to 2.19, which ships no types.
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

class AnsibleModule:
    params: dict[str, Any]
    check_mode: bool
    _diff: bool
    tmpdir: str
    no_log_values: set[str]
    def __init__(
        self,
        argument_spec: Mapping[str, Mapping[str, Any]],
        *,
        mutually_exclusive: Sequence[Sequence[str]] | None = ...,
        required_together: Sequence[Sequence[str]] | None = ...,
        required_one_of: Sequence[Sequence[str]] | None = ...,
        required_if: Sequence[Any] | None = ...,
        required_by: Mapping[str, str | Sequence[str]] | None = ...,
        supports_check_mode: bool = ...,
    ) -> None: ...
    def exit_json(self, **kwargs: Any) -> NoReturn: ...
    def fail_json(self, msg: str, **kwargs: Any) -> NoReturn: ...
    def warn(self, warning: str) -> None: ...
    def debug(self, msg: str) -> None: ...
    def get_bin_path(self, arg: str, required: bool = ..., opt_dirs: Sequence[str] | None = ...) -> str | None: ...
    def run_command(
        self,
        args: Sequence[str],
        *,
        check_rc: bool = ...,
        cwd: str | None = ...,
        environ_update: Mapping[str, str] | None = ...,
        data: str | None = ...,
        umask: int | None = ...,
    ) -> tuple[int, str, str]: ...
