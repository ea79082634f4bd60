from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server import sse


def read(*chunks: bytes) -> list[str]:
    state = sse.SseState()
    events: list[str] = []
    for chunk in chunks:
        state, more = sse.feed(state, chunk)
        events += more
    return events


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", ["a"]),
        (b"data:a\n\n", ["a"]),
        (b"data:  a\n\n", [" a"]),
        (b"data: a\r\n\r\n", ["a"]),
        (b"data: a\r\r", ["a"]),
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"data\n\n", [""]),
        (b"data: a: b\n\n", ["a: b"]),
        (b": ping\n\n", []),
        (b": ping\ndata: a\n\n", ["a"]),
        (b"event: x\nid: 1\nretry: 5\ndata: a\n\n", ["a"]),
        (b"datum: a\n\n", []),
        (b"\n\n\n", []),
        (b"data: a\n", []),
        (b"data: \xc3\xa9\xff\n\n", ["é\ufffd"]),
    ],
)
def test_a_stream_is_read_as_the_standard_says(stream, events):
    assert read(stream) == events


@given(
    st.lists(
        st.sampled_from([b"data: ab", b"data:", b": c", b"\n", b"\r\n", b"\r", b"\xc3\xa9", b"x"])
    ),
    st.lists(st.integers(0, 60)),
)
def test_the_cuts_between_reads_change_nothing(parts, cuts):
    stream = b"".join(parts)
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    chunks = [stream[a:b] for a, b in itertools.pairwise(places)]
    assert read(*chunks) == read(stream)
    assert read(*[stream[i : i + 1] for i in range(len(stream))]) == read(stream)


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))))
def test_what_was_written_is_read(texts):
    stream = b"".join(b"data: " + text.encode() + b"\n\n" for text in texts)
    assert read(stream) == texts


def test_the_last_event_counts_without_its_empty_line():
    for stream in (b"data: [DONE]", b"data: [DONE]\n", b"data: [DONE]\r"):
        state, events = sse.feed(sse.SseState(), stream)
        assert events == []
        assert sse.finish(state) == ["[DONE]"]


def test_an_event_without_an_end_is_refused_before_it_fills_the_memory():
    state = sse.SseState()
    with pytest.raises(sse.SseError):  # noqa: PT012
        for _ in range(20):
            state, _ = sse.feed(state, b"x" * 2**20)
    lines = b"data: " + b"x" * 2**20 + b"\n"
    state = sse.SseState()
    with pytest.raises(sse.SseError):  # noqa: PT012
        for _ in range(20):
            state, _ = sse.feed(state, lines)
