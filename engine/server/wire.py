"""From JSON to a `GenerationRequest`: every wrong type or value has its own sentence.

Pure functions; docs/engine-api.md is the contract. Keys whose value is null count as
absent, because several clients send every option they know.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.core import GenerationRequest, Message
from engine.server.wire_errors import InvalidRequest
from engine.server.wire_workspace import window_of, workspace_of

MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_MESSAGES = 256
MAX_TOKENS = 1_000_000
MAX_TOKEN_SETTINGS = 1024
MAX_TOKEN_ID = 2**31 - 1
MAX_STOPS = 8
MAX_NAME_CHARS = 4096

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


class ParsedRequest(NamedTuple):
    """A request and how its answer is to be sent.

    Attributes:
        request: what to generate.
        stream: server-sent events, else one object.
        include_usage: the last chunk carries `usage` and `redraft.stats`.
        extras: the request has a `redraft` key, so its client knows ours.
    """

    request: GenerationRequest
    stream: bool
    include_usage: bool
    extras: bool


def parse_body(body: bytes, default_model: str) -> ParsedRequest:
    """Read the body of `POST /v1/chat/completions`.

    Raises:
        InvalidRequest: it is not JSON, or not a request.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidRequest(None, "The request's body is not valid JSON.") from None
    return parse_request(value, default_model)


def parse_request(value: Any, default_model: str) -> ParsedRequest:
    """Turn a JSON value into a request.

    Args:
        value: what `json.loads` gave.
        default_model: what the names `default` and the empty text mean.

    Raises:
        InvalidRequest: whatever is wrong with it.
    """
    if not isinstance(value, dict):
        raise InvalidRequest(None, "The request's body must be a JSON object.")
    _refuse_unsupported(value)
    messages = _messages(value)
    continued = _boolean(value, "continue_final_message", default=False)
    if continued and messages[-1].role != "assistant":
        raise InvalidRequest(
            "continue_final_message",
            "`continue_final_message` needs a last message with the role `assistant`.",
        )
    extras = _object(value, "redraft")
    options = _object(value, "stream_options")
    prediction = _prediction(value)
    source = _text(extras, "source", "redraft.source")
    model = _name(value, "model", "model")
    request = GenerationRequest(
        model=default_model if model in (None, "", "default") else model,
        messages=messages,
        continue_final_message=continued,
        max_tokens=_max_tokens(value, extras),
        temperature=_number(value, "temperature", low=0.0, high=2.0, default=0.0),
        top_p=_above_zero(value, "top_p", high=1.0),
        top_k=_top_k(value),
        min_p=_number(value, "min_p", low=0.0, high=1.0, default=0.0),
        repetition_penalty=_number(value, "repetition_penalty", low=0.01, high=10.0, default=1.0),
        logit_bias=_logit_bias(value),
        banned_tokens=_banned_tokens(extras),
        acceptance=_acceptance(extras),
        exact=_boolean(extras, "exact", default=True, param="redraft.exact"),
        seed=_seed(value),
        stop=_stop(value),
        source=prediction if source is None else source,
        draft=_boolean(extras, "draft", default=True, param="redraft.draft"),
        draft_model=_name(extras, "draft_model", "redraft.draft_model") or None,
        workspace=workspace_of(extras.get("workspace")),
        window=window_of(extras.get("window")),
    )
    has_extras = value.get("redraft") is not None
    include_usage = _boolean(
        options, "include_usage", default=False, param="stream_options.include_usage"
    )
    return ParsedRequest(
        request=request,
        stream=_boolean(value, "stream", default=False),
        include_usage=include_usage or has_extras,
        extras=has_extras,
    )


def _refuse_unsupported(value: Mapping[str, Any]) -> None:
    n = value.get("n")
    if n is not None and (isinstance(n, bool) or n != 1):
        raise InvalidRequest("n", "`n` must be 1: the engine writes one answer a request.")
    for key in ("tools", "logprobs", "top_logprobs"):
        if value.get(key):
            raise InvalidRequest(key, f"`{key}` is not supported by this engine; leave it out.")


def _messages(value: Mapping[str, Any]) -> tuple[Message, ...]:
    items = value.get("messages")
    if not isinstance(items, list) or not items:
        raise InvalidRequest("messages", "`messages` must be a list with at least one message.")
    if len(items) > MAX_MESSAGES:
        raise InvalidRequest("messages", f"`messages` may hold at most {MAX_MESSAGES} messages.")
    return tuple(_message(item, f"messages[{i}]") for i, item in enumerate(items))


def _message(item: Any, where: str) -> Message:
    if not isinstance(item, dict):
        raise InvalidRequest("messages", f"`{where}` must be an object.")
    role = item.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise InvalidRequest(
            "messages", f"`{where}.role` must be one of system, developer, user and assistant."
        )
    return Message(_ROLES[role], _content(item.get("content"), "messages", f"{where}.content"))


def _content(content: Any, param: str, where: str) -> str:
    """A text, or a list of text parts, as OpenAI writes them."""
    if isinstance(content, str):
        return _checked(content, param, where)
    if not isinstance(content, list):
        raise InvalidRequest(param, f"`{where}` must be a text or a list of text parts.")
    texts: list[str] = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            raise InvalidRequest(
                param,
                f"`{where}` may hold only parts of type `text`; images are not supported.",
            )
        if not isinstance(part.get("text"), str):
            raise InvalidRequest(param, f"`{where}` has a part whose `text` is not a text.")
        texts.append(_checked(part["text"], param, where))
    return "".join(texts)


def _checked(text: str, param: str, where: str) -> str:
    # JSON can spell half a surrogate pair, which no tokenizer can encode.
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidRequest(
            param, f"`{where}` holds half of a surrogate pair, which is not valid text."
        ) from None
    return text


def _text(value: Mapping[str, Any], key: str, param: str) -> str | None:
    item = value.get(key)
    if item is None:
        return None
    if not isinstance(item, str):
        raise InvalidRequest(param, f"`{param}` must be a text.")
    return _checked(item, param, param)


def _name(value: Mapping[str, Any], key: str, param: str) -> str | None:
    name = _text(value, key, param)
    if name is None:
        return None
    if len(name) > MAX_NAME_CHARS or not name.isprintable():
        raise InvalidRequest(param, f"`{param}` is not a name of a model, folder or file.")
    return name


def _prediction(value: Mapping[str, Any]) -> str | None:
    prediction = value.get("prediction")
    if prediction is None:
        return None
    if not isinstance(prediction, dict) or prediction.get("type") != "content":
        raise InvalidRequest(
            "prediction", "`prediction` must be an object with `type` `content` and a `content`."
        )
    return _content(prediction.get("content"), "prediction", "prediction.content")


def _object(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    item = value.get(key)
    if item is None:
        return {}
    if not isinstance(item, dict):
        raise InvalidRequest(key, f"`{key}` must be an object.")
    return item


def _boolean(
    value: Mapping[str, Any], key: str, *, default: bool, param: str | None = None
) -> bool:
    item = value.get(key)
    if item is None:
        return default
    if not isinstance(item, bool):
        name = param or key
        raise InvalidRequest(name, f"`{name}` must be true or false.")
    return item


def _integer(value: Mapping[str, Any], key: str) -> int | None:
    item = value.get(key)
    if item is None:
        return None
    if isinstance(item, bool) or not isinstance(item, int):
        raise InvalidRequest(key, f"`{key}` must be a whole number.")
    return item


def _max_tokens(value: Mapping[str, Any], extras: Mapping[str, Any]) -> int | None:
    if _boolean(extras, "warm", default=False, param="redraft.warm"):
        return 0
    chosen: int | None = None
    # `max_tokens` is the older name, so the newer one wins where both are given.
    for key in ("max_tokens", "max_completion_tokens"):
        limit = _integer(value, key)
        if limit is None:
            continue
        if not 0 <= limit <= MAX_TOKENS:
            raise InvalidRequest(key, f"`{key}` must be from 0 to {MAX_TOKENS}.")
        chosen = limit
    return chosen


def _seed(value: Mapping[str, Any]) -> int:
    seed = _integer(value, "seed")
    if seed is None:
        return 0
    if not -(2**63) <= seed < 2**63:
        raise InvalidRequest("seed", "`seed` must fit in 64 bits.")
    return seed % 2**63


def _number(
    value: Mapping[str, Any], key: str, *, low: float, high: float, default: float
) -> float:
    item = value.get(key)
    if item is None:
        return default
    if isinstance(item, bool) or not isinstance(item, int | float):
        raise InvalidRequest(key, f"`{key}` must be a number.")
    # Compared before the conversion: a huge integer does not fit into a float.
    if (isinstance(item, float) and not math.isfinite(item)) or not low <= item <= high:
        raise InvalidRequest(key, f"`{key}` must be from {low:g} to {high:g}.")
    return float(item)


def _above_zero(value: Mapping[str, Any], key: str, *, high: float) -> float:
    number = _number(value, key, low=0.0, high=high, default=1.0)
    if number == 0.0:
        raise InvalidRequest(key, f"`{key}` must be greater than 0.")
    return number


def _top_k(value: Mapping[str, Any]) -> int:
    top_k = _integer(value, "top_k")
    # Some clients write -1 for "all", others 0.
    if top_k is None or top_k == -1:
        return 0
    if not 0 <= top_k <= MAX_TOKEN_ID:
        raise InvalidRequest("top_k", "`top_k` must be 0 (all) or a number of tokens.")
    return top_k


def _logit_bias(value: Mapping[str, Any]) -> tuple[tuple[int, float], ...]:
    """OpenAI's form: an object of token ids, as texts, and what is added to their logits."""
    bias = _object(value, "logit_bias")
    if len(bias) > MAX_TOKEN_SETTINGS:
        raise InvalidRequest(
            "logit_bias", f"`logit_bias` may hold at most {MAX_TOKEN_SETTINGS} tokens."
        )
    return tuple((_token_id(key), _bias(added)) for key, added in bias.items())


def _token_id(key: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) < 10):
        raise InvalidRequest("logit_bias", "`logit_bias` must have token ids as its keys.")
    return int(key)


def _bias(added: Any) -> float:
    number = isinstance(added, int | float) and not isinstance(added, bool)
    if not number or not -100 <= added <= 100:
        raise InvalidRequest("logit_bias", "`logit_bias` may hold only numbers from -100 to 100.")
    return float(added)


def _banned_tokens(extras: Mapping[str, Any]) -> frozenset[int]:
    banned = extras.get("banned_tokens")
    if banned is None:
        return frozenset()
    whole = isinstance(banned, list) and all(
        isinstance(token, int) and not isinstance(token, bool) and 0 <= token <= MAX_TOKEN_ID
        for token in banned
    )
    if not whole or len(banned) > MAX_TOKEN_SETTINGS:
        raise InvalidRequest(
            "redraft.banned_tokens",
            f"`redraft.banned_tokens` must be a list of at most {MAX_TOKEN_SETTINGS} token ids.",
        )
    return frozenset(banned)


def _acceptance(extras: Mapping[str, Any]) -> str:
    rule = extras.get("acceptance")
    if rule is None:
        return "coupled"
    if rule not in ("coupled", "rejection"):
        raise InvalidRequest(
            "redraft.acceptance", "`redraft.acceptance` must be `coupled` or `rejection`."
        )
    return rule


def _stop(value: Mapping[str, Any]) -> tuple[str, ...]:
    stop = value.get("stop")
    if stop is None:
        return ()
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or len(stops) > MAX_STOPS:
        raise InvalidRequest("stop", f"`stop` must be a text or a list of up to {MAX_STOPS} texts.")
    for item in stops:
        if not isinstance(item, str) or not item:
            raise InvalidRequest("stop", "`stop` may hold only texts that are not empty.")
        _checked(item, "stop", "stop")
    return tuple(stops)
