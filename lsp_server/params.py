"""Reads the parameters of redraft's own requests and commands.

Raises `JsonRpcInvalidParams` (-32602) with one sentence that names the wrong key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from pygls.exceptions import JsonRpcInvalidParams

from lsp_server.capabilities import Settings
from lsp_server.core import GenerationOptions
from lsp_server.text.positions import LinePosition

MAX_JOB_ID_CHARS = 200
_MAX_UINTEGER = 2**31 - 1


class Place(NamedTuple):
    """Where to rewrite: a document, and a range in it (empty for a cursor)."""

    uri: str
    version: int | None
    start: LinePosition
    end: LinePosition


class RewriteParams(NamedTuple):
    """The parameters of `redraft/rewrite` and the command `redraft.rewrite`."""

    place: Place
    instruction: str
    preset: str | None
    options: GenerationOptions
    job_id: str | None
    apply: bool
    token: str | int | None


def object_of(params: Any) -> Mapping[str, Any]:
    """The parameters as an object."""
    if not isinstance(params, Mapping):
        raise JsonRpcInvalidParams("The parameters must be an object.")
    return params


def read_place(params: Any) -> Place:
    """Read `textDocument` and one of `range` or `position`."""
    given = object_of(params)
    document = given.get("textDocument")
    if not isinstance(document, Mapping):
        raise JsonRpcInvalidParams("`textDocument` must be an object with a `uri`.")
    uri = _text(document, "uri")
    if not uri:
        raise JsonRpcInvalidParams("`textDocument.uri` is missing.")
    version = _integer(document, "version")
    span = given.get("range")
    if span is not None:
        if not isinstance(span, Mapping):
            raise JsonRpcInvalidParams("`range` must have `start` and `end`.")
        start, end = _position(span.get("start"), "range"), _position(span.get("end"), "range")
        if end < start:
            start, end = end, start
        return Place(uri, version, start, end)
    if given.get("position") is None:
        raise JsonRpcInvalidParams("One of `range` and `position` must be given.")
    position = _position(given["position"], "position")
    return Place(uri, version, position, position)


def read_rewrite(params: Any, settings: Settings) -> RewriteParams:
    """Read a rewrite; what it leaves open comes from the settings."""
    given = object_of(params)
    place = read_place(given)
    instruction, preset = _text(given, "instruction"), _text(given, "preset")
    if instruction is None and preset is None:
        raise JsonRpcInvalidParams("One of `instruction` and `preset` must be given.")
    draft, temperature, seed = _flag(given, "draft"), _number(given), _seed(given)
    return RewriteParams(
        place=place,
        instruction=instruction or "",
        preset=preset,
        options=GenerationOptions(
            model=_text(given, "model") or settings.model,
            draft_model=_text(given, "draftModel") or settings.draft_model,
            draft=settings.draft if draft is None else draft,
            temperature=0.0 if temperature is None else temperature,
            seed=0 if seed is None else seed,
        ),
        job_id=read_job_id(given, required=False),
        apply=_flag(given, "apply") or False,
        token=_token(given),
    )


def read_job_id(params: Any, *, required: bool = True) -> str | None:
    """Read `jobId`."""
    job_id = _text(object_of(params), "jobId")
    if job_id is not None and not 0 < len(job_id) <= MAX_JOB_ID_CHARS:
        raise JsonRpcInvalidParams(f"`jobId` must have 1 to {MAX_JOB_ID_CHARS} characters.")
    if required and job_id is None:
        raise JsonRpcInvalidParams("`jobId` is missing.")
    return job_id


def read_hunk_ids(params: Any) -> frozenset[str] | None:
    """Read `hunks`, a list of hunk ids; None means all."""
    ids = object_of(params).get("hunks")
    if ids is None:
        return None
    if not isinstance(ids, (list, tuple)) or not all(isinstance(i, str) for i in ids):
        raise JsonRpcInvalidParams("`hunks` must be a list of hunk ids.")
    return frozenset(ids)


def _text(given: Mapping[str, Any], key: str) -> str | None:
    value = given.get(key)
    if value is None or isinstance(value, str):
        return value
    raise JsonRpcInvalidParams(f"`{key}` must be a text.")


def _flag(given: Mapping[str, Any], key: str) -> bool | None:
    value = given.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise JsonRpcInvalidParams(f"`{key}` must be true or false.")


def _integer(given: Mapping[str, Any], key: str) -> int | None:
    value = given.get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise JsonRpcInvalidParams(f"`{key}` must be a whole number.")


def _seed(given: Mapping[str, Any]) -> int | None:
    seed = _integer(given, "seed")
    if seed is not None and not -(2**63) <= seed < 2**63:
        raise JsonRpcInvalidParams("`seed` must fit in 64 bits.")
    return seed


def _number(given: Mapping[str, Any]) -> float | None:
    value = given.get("temperature")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise JsonRpcInvalidParams("`temperature` must be a number.")
    if not math.isfinite(value) or not 0 <= value <= 2:
        raise JsonRpcInvalidParams("`temperature` must be between 0 and 2.")
    return float(value)


def _token(given: Mapping[str, Any]) -> str | int | None:
    value = given.get("workDoneToken")
    if value is None or (isinstance(value, (str, int)) and not isinstance(value, bool)):
        return value
    raise JsonRpcInvalidParams("`workDoneToken` must be a text or a whole number.")


def _position(value: Any, key: str) -> LinePosition:
    if isinstance(value, Mapping):
        line, character = _unsigned(value.get("line")), _unsigned(value.get("character"))
        if line is not None and character is not None:
            return LinePosition(line, character)
    raise JsonRpcInvalidParams(f"`{key}` must have `line` and `character`, both 0 or more.")


def _unsigned(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= _MAX_UINTEGER else None
