from typing import Any

class CallbackBase:
    CALLBACK_VERSION: float
    CALLBACK_TYPE: str
    CALLBACK_NAME: str
    CALLBACK_NEEDS_ENABLED: bool
    _display: Any
    def __init__(self, display: Any = ..., options: Any = ...) -> None: ...
    def set_options(self, task_keys: Any = ..., var_options: Any = ..., direct: Any = ...) -> None: ...
    def get_option(self, k: str) -> Any: ...
