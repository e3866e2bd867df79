from typing import Any

class _Loader:
    def get(self, name: str, *, class_only: bool = ...) -> Any: ...

action_loader: _Loader
