"""The error of a request that cannot be read."""

from __future__ import annotations

from engine.core import EngineError


class InvalidRequest(EngineError):
    """A request that cannot be read; `param` names the key at fault."""

    def __init__(self, param: str | None, message: str) -> None:
        super().__init__("invalid_request", message)
        self.param = param
