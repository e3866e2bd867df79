from typing import Any

class ActionBase:
    TRANSFERS_FILES: bool
    _VALID_ARGS: frozenset[str]
    _supports_check_mode: bool
    _supports_async: bool
    _task: Any
    _connection: Any
    _play_context: Any
    _loader: Any
    _templar: Any
    _shared_loader_obj: Any
    def run(self, tmp: str | None = ..., task_vars: dict[str, Any] | None = ...) -> dict[str, Any]: ...
    def _execute_module(
        self,
        module_name: str | None = ...,
        module_args: dict[str, Any] | None = ...,
        tmp: str | None = ...,
        task_vars: dict[str, Any] | None = ...,
        persist_files: bool = ...,
        delete_remote_tmp: bool | None = ...,
        wrap_async: bool = ...,
    ) -> dict[str, Any]: ...
    def _find_needle(self, dirname: str, needle: str) -> str: ...
    def _transfer_file(self, local_path: str, remote_path: str) -> str: ...
    def _make_tmp_path(self, remote_user: str | None = ...) -> str: ...
    def _remove_tmp_path(self, tmp_path: str, force: bool = ...) -> None: ...
    def _remote_expand_user(self, path: str, sudoable: bool = ..., pathsep: str | None = ...) -> str: ...
    def _fixup_perms2(self, remote_paths: tuple[str, ...] | list[str]) -> None: ...
