"""Server-sent events, read from bytes as they come. Pure: a state in, a state out.

However the bytes are cut into reads, the same events come out. Only the `data` field
matters here; comments and other fields are skipped (WHATWG HTML, "Server-sent events").
"""

from __future__ import annotations

from typing import NamedTuple

MAX_EVENT_BYTES = 16 * 1024 * 1024


class SseError(ValueError):
    """An event without an end in sight."""


class SseState(NamedTuple):
    """What was read and is not an event yet.

    Attributes:
        line: the beginning of the current line.
        data: the `data` lines of the current event.
        after_return: the last byte was a CR, so a LF right after it ends no line.
        size: bytes in `line` and `data`.
    """

    line: bytes = b""
    data: tuple[bytes, ...] = ()
    after_return: bool = False
    size: int = 0


def feed(state: SseState, chunk: bytes) -> tuple[SseState, list[str]]:
    """Read on; return the new state and the data of each event that is now complete.

    Raises:
        SseError: one event has more than `MAX_EVENT_BYTES`.
    """
    if not chunk:
        return state, []
    after_return = chunk.endswith(b"\r")
    if state.after_return and chunk.startswith(b"\n"):
        chunk = chunk[1:]
    # Only what is new is searched: a long line costs no more than its length.
    *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    if lines:
        lines[0] = state.line + lines[0]
    else:
        rest = state.line + rest
    data = list(state.data)
    events: list[str] = []
    for line in lines:
        if line:
            value = _data_of(line)
            if value is not None:
                data.append(value)
        elif data:
            events.append(b"\n".join(data).decode("utf-8", "replace"))
            data = []
    size = len(rest) + sum(map(len, data))
    if size > MAX_EVENT_BYTES:
        raise SseError(f"an event of more than {MAX_EVENT_BYTES} bytes")
    return SseState(rest, tuple(data), after_return, size), events


def finish(state: SseState) -> list[str]:
    """The event that the stream ended in, where its closing empty line is missing."""
    return feed(state, b"\n\n")[1]


def _data_of(line: bytes) -> bytes | None:
    name, _, value = line.partition(b":")
    if name != b"data":
        return None
    return value.removeprefix(b" ")
