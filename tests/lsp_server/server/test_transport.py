"""Framing: bodies come out whole, however the bytes come in."""

from __future__ import annotations

import asyncio
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server import transport
from lsp_server.transport import MAX_BODY_BYTES, FrameParser, Reader, Writer


def _frame(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(1, 50), min_size=1))
def test_any_chunking_gives_the_same_bodies(bodies: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(map(_frame, bodies))
    parser, found, at, turn = FrameParser(), [], 0, 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        found += parser.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert found == bodies


@pytest.mark.parametrize(
    "header",
    [
        b"content-length:2",
        b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: 2",
        b"Content-Length: 2\r\nX: y",
        b"CONTENT-LENGTH:  2 ",
    ],
)
def test_headers_of_all_sorts_are_read(header: bytes) -> None:
    assert FrameParser().feed(header + b"\r\n\r\n{}") == [b"{}"]


@pytest.mark.parametrize(
    "bad",
    [
        b"Nonsense\r\n\r\n",
        b"Content-Length: -5\r\n\r\n",
        b"Content-Length: abc\r\n\r\n",
        b"\x00\xff" * 9000 + b"\r\n\r\n",
    ],
)
def test_a_bad_header_is_skipped_and_the_next_message_is_read(bad: bytes) -> None:
    parser = FrameParser()
    assert parser.feed(bad) + parser.feed(_frame(b"{}")) == [b"{}"]


def test_an_oversized_body_is_skipped_without_being_kept() -> None:
    parser = FrameParser()
    size = MAX_BODY_BYTES + 1
    assert parser.feed(b"Content-Length: %d\r\n\r\n" % size) == []
    chunk = b"x" * (1024 * 1024)
    for _ in range(size // len(chunk)):
        assert parser.feed(chunk) == []
        assert len(parser._buffer) == 0
    assert parser.feed(b"x" + _frame(b"{}")) == [b"{}"]


async def test_reader_and_writer_carry_messages_over_a_pipe() -> None:
    source, target = os.pipe()
    bodies: list[bytes] = []
    ended = asyncio.Event()
    Reader(source, bodies.append, ended.set)
    writer = Writer(target, lambda: None)
    # More than the reader lets wait, and more than a pipe holds.
    sent = [b"%d " % number * 500 for number in range(300)]
    for body in sent:
        writer.write(_frame(body))
    await asyncio.get_running_loop().run_in_executor(None, writer.close)
    assert writer.unsent_bytes == 0
    os.close(target)
    await asyncio.wait_for(ended.wait(), 10)
    assert bodies == sent
    os.close(source)


async def test_a_client_that_reads_nothing_is_given_up_and_never_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "MAX_UNSENT_BYTES", 1_000_000)
    source, target = os.pipe()
    failures: list[bool] = []
    writer = Writer(target, lambda: failures.append(True))
    for _ in range(30):
        writer.write(b"x" * 100_000)
    assert failures == [True]
    os.close(source)
    writer.close()
    os.close(target)


async def test_a_closed_pipe_is_noticed() -> None:
    source, target = os.pipe()
    failed = asyncio.Event()
    os.close(source)
    writer = Writer(target, failed.set)
    writer.write(b"x")
    await asyncio.wait_for(failed.wait(), 10)
    os.close(target)
