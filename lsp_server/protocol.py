"""What redraft changes in pygls' protocol, each with its reason.

- documents live in our own mirror: pygls' splits lines at characters that are no line
  ends in LSP, and keeping a second copy of each document costs time on every key;
- parameters that cannot be read get an answer (-32602), where pygls leaves the request
  unanswered;
- requests before `initialize` and after `shutdown` get the answer that LSP demands;
- redraft's own requests begin before the next message is looked at, so that they see
  the text that the client saw when it asked.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.capabilities import ServerCapabilitiesBuilder
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams
from pygls.protocol import (
    JsonRPCNotification,
    JsonRPCRequestMessage,
    LanguageServerProtocol,
    lsp_method,
)
from pygls.protocol.json_rpc import RPCRequest

from lsp_server.core import RewriteError

if TYPE_CHECKING:
    from lsp_server.server import RedraftServer

logger = logging.getLogger(__name__)

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
NOT_INITIALIZED = -32002
CONTENT_MODIFIED = -32801
REQUEST_FAILED = -32803

INTERNAL_MESSAGE = "redraft hit a fault of its own; its log says where. The text is unchanged."

# Notebooks and workspace folders mean nothing to us, so they are not offered either.
_UNUSED_BUILTINS = (
    types.NOTEBOOK_DOCUMENT_DID_OPEN,
    types.NOTEBOOK_DOCUMENT_DID_CHANGE,
    types.NOTEBOOK_DOCUMENT_DID_CLOSE,
    types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS,
    types.TEXT_DOCUMENT_DID_OPEN,
    types.TEXT_DOCUMENT_DID_CHANGE,
    types.TEXT_DOCUMENT_DID_CLOSE,
    types.WINDOW_WORK_DONE_PROGRESS_CANCEL,
)


class _Unreadable(Exception):
    """A message that cannot be read, and what to answer to it."""

    def __init__(self, code: int, message: str, msg_id: str | int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.msg_id = msg_id


def as_json_rpc(error: Exception) -> JsonRpcException:
    """Any failure of a request as the error that its client gets."""
    if isinstance(error, JsonRpcException):
        return error
    if isinstance(error, RewriteError):
        return JsonRpcException(error.message, code=REQUEST_FAILED, data={"code": error.code})
    return JsonRpcException(INTERNAL_MESSAGE, code=INTERNAL_ERROR)


class RedraftProtocol(LanguageServerProtocol):
    """pygls' protocol with our own mirror, life cycle and requests."""

    _server: RedraftServer  # type: ignore[assignment]

    def __init__(self, server: Any, converter: Any) -> None:
        super().__init__(server, converter)
        self._initialized = False
        self.requests: dict[str, Callable[[Any], Any]] = {}
        for method in _UNUSED_BUILTINS:
            self.fm.builtin_features.pop(method, None)

    def receive(self, body: bytes) -> None:
        """Handle one message. Never raises."""
        try:
            self.handle_message(self._read(body))
        except _Unreadable as error:
            logger.warning("unreadable message: %s", error.message)
            self._refuse(error.msg_id, error.code, error.message)
        except Exception:
            logger.exception("a message could not be handled")

    def _read(self, body: bytes) -> Any:
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            raise _Unreadable(PARSE_ERROR, "The message is not JSON.") from None
        if not isinstance(data, dict):
            raise _Unreadable(INVALID_REQUEST, "The message is not an object.")
        msg_id, method = data.get("id"), data.get("method")
        if isinstance(msg_id, bool) or not isinstance(msg_id, (int, str, type(None))):
            raise _Unreadable(INVALID_REQUEST, "`id` must be a number or a text.")
        if method is None and msg_id is None:
            raise _Unreadable(INVALID_REQUEST, "The message has neither `method` nor `id`.")
        if data.get("jsonrpc") != self.VERSION or not isinstance(method, (str, type(None))):
            raise _Unreadable(INVALID_REQUEST, "The message is not JSON-RPC 2.0.", msg_id)
        if method is not None and method not in types.METHOD_TO_TYPES:
            # Ours: the parameters stay as they are, and are read where they are used.
            if msg_id is None:
                return JsonRPCNotification(method, self.VERSION, data.get("params"))
            return JsonRPCRequestMessage(msg_id, method, self.VERSION, data.get("params"))
        try:
            return self.structure_message(data)
        except JsonRpcException:
            if method is None:
                raise _Unreadable(INVALID_REQUEST, "An answer could not be read.") from None
            raise _Unreadable(
                INVALID_PARAMS, f"The parameters of {method} cannot be read.", msg_id
            ) from None

    def forget_request(self, msg_id: str) -> None:
        """Wait no longer for the client's answer; one that still comes is passed over."""
        self._request_futures.pop(msg_id, None)
        self._result_types.pop(msg_id, None)

    def _refuse(self, msg_id: str | int | None, code: int, message: str) -> None:
        if msg_id is None and code == INVALID_PARAMS:
            return  # a notification: nobody waits
        # As a dictionary, since the converter would leave out an id that is null.
        error = {"code": code, "message": message}
        self._send_data({"jsonrpc": self.VERSION, "id": msg_id, "error": error})

    def handle_message(self, message: Any) -> None:
        """Hand a message on, unless the life cycle forbids it."""
        method = getattr(message, "method", None)
        if method is None or method == types.EXIT:
            super().handle_message(message)
            return
        is_request = isinstance(message, RPCRequest)
        if not self._initialized and method != types.INITIALIZE:
            if is_request:
                self._refuse(message.id, NOT_INITIALIZED, "`initialize` must come first.")
            return
        if self._shutdown or (self._initialized and method == types.INITIALIZE):
            if is_request:
                text = "The server is shut down." if self._shutdown else "Already initialized."
                self._refuse(message.id, INVALID_REQUEST, text)
            return
        super().handle_message(message)

    def _handle_request(self, msg_id: Any, method_name: str, params: Any) -> None:
        handler = self.requests.get(method_name)
        if handler is None:
            super()._handle_request(msg_id, method_name, params)
            return
        try:
            result = handler(params)
        except Exception as error:
            self._send_failure(msg_id, method_name, error)
            return
        if not inspect.isawaitable(result):
            self._send_response(msg_id, result=result)
            return
        future = asyncio.ensure_future(result)
        self._request_futures[msg_id] = future  # type: ignore[assignment]
        future.add_done_callback(partial(self._answer, msg_id, method_name))

    def _answer(self, msg_id: Any, method: str, future: asyncio.Future[Any]) -> None:
        self._request_futures.pop(msg_id, None)
        if future.cancelled():
            error = types.ResponseError(code=-32800, message="The request was cancelled.")
            self._send_response(msg_id, error=error)
        elif (failure := future.exception()) is not None:
            self._send_failure(msg_id, method, failure)
        else:
            self._send_response(msg_id, result=future.result())

    def _send_failure(self, msg_id: Any, method: str, error: BaseException) -> None:
        if not isinstance(error, (JsonRpcException, RewriteError)):
            logger.error("%s (request %r) failed", method, msg_id, exc_info=error)
        wrapped = as_json_rpc(error if isinstance(error, Exception) else Exception())
        self._send_response(msg_id, error=wrapped.to_response_error())

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams) -> Any:
        """Answer with the server's capabilities."""
        self._initialized = True
        self._server.process_id = params.process_id
        self.client_capabilities = params.capabilities
        encoding = ServerCapabilitiesBuilder.choose_position_encoding(params.capabilities)
        capabilities = ServerCapabilitiesBuilder(
            params.capabilities,
            {*self.fm.features, *self.fm.builtin_features},
            self.fm.feature_options,
            list(self.fm.commands),
            types.TextDocumentSyncKind.Incremental,
            None,
            encoding,
        ).build()
        capabilities.workspace = None
        capabilities.experimental = {"redraft": {"version": 1}}
        self.server_capabilities = capabilities
        self._server.begin(params)
        return types.InitializeResult(capabilities=capabilities, server_info=self.server_info)

    @lsp_method(types.SHUTDOWN)
    async def lsp_shutdown(self, *_: Any) -> None:  # type: ignore[override]
        """Stop all work; only `exit` is expected after it."""
        self._shutdown = True
        await self._server.end_work()

    @lsp_method(types.EXIT)
    def lsp_exit(self, *_: Any) -> None:  # type: ignore[override]
        """End the process: 0 after `shutdown`, else 1."""
        self._server.stop(0 if self._shutdown else 1)

    @lsp_method(types.WORKSPACE_EXECUTE_COMMAND)
    def lsp_workspace__execute_command(self, params: types.ExecuteCommandParams) -> Any:
        """Run a command now, in the same step as the message, with its raw arguments."""
        handler = self.fm.commands.get(params.command)
        if handler is None:
            raise JsonRpcInvalidParams(f"There is no command {params.command!r}.")
        try:
            return handler(*(params.arguments or ()))
        except Exception as error:
            if not isinstance(error, (JsonRpcException, RewriteError)):
                logger.exception("command %s failed", params.command)
            raise as_json_rpc(error) from None
