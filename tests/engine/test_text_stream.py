from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.chat import Chat
from engine.text_stream import TextStream
from tests.tiny import make_vocabulary

VOCABULARY = make_vocabulary()
TOKENIZER = VOCABULARY.tokenizer
CHAT = Chat(VOCABULARY)


def tokens_of(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False).ids


def streamed(text: str, stop=(), **kwargs) -> tuple[list[str], TextStream]:
    stream = TextStream(TOKENIZER, tokens_of("```python\n"), stop, **kwargs)
    pieces = []
    for token in tokens_of(text):
        stream.feed(token)
        if delta := stream.take():
            pieces.append(delta.text)
        if stream.stopped:
            break
    if delta := stream.finish():
        pieces.append(delta.text)
    return pieces, stream


any_text = st.text(
    st.one_of(st.characters(codec="utf-8", exclude_characters="\ufffd"), st.sampled_from("\n`é😀")),
    max_size=40,
)


@given(any_text)
def test_the_pieces_make_up_the_text_and_none_holds_half_a_character(text) -> None:
    pieces, _ = streamed(text)
    assert "".join(pieces) == text
    for piece in pieces:
        assert "\ufffd" not in piece


@given(any_text, any_text)
def test_what_stands_before_a_stop_text_is_all_that_comes(before, after) -> None:
    pieces, stream = streamed(f"{before}\n```{after}", stop=["\n```"])
    whole = f"{before}\n```{after}"
    assert "".join(pieces) == whole[: whole.index("\n```")]
    assert stream.stopped


@given(any_text)
def test_text_that_might_become_a_stop_text_is_held_back_until_it_is_settled(text) -> None:
    stop = "\n```"
    stream = TextStream(TOKENIZER, [], [stop])
    sent = ""
    for token in tokens_of(text):
        stream.feed(token)
        delta = stream.take()
        sent += delta.text if delta else ""
        assert not any(sent.endswith(stop[:n]) for n in range(1, len(stop)))
        if stream.stopped:
            break


def test_the_first_of_two_stop_texts_ends_it() -> None:
    pieces, _ = streamed("one END two STOP", stop=["STOP", "END"])
    assert "".join(pieces) == "one "


def test_a_character_cut_off_by_the_limit_is_dropped() -> None:
    ids = tokens_of("a😀")
    assert len(ids) > 2
    stream = TextStream(TOKENIZER, [])
    for token in ids[:-1]:
        stream.feed(token)
    assert stream.finish().text == "a"


def test_special_tokens_are_no_text() -> None:
    stream = TextStream(TOKENIZER, [])
    for token in [*tokens_of("a"), TOKENIZER.token_to_id("<|im_end|>"), *tokens_of("b")]:
        stream.feed(token)
    assert stream.finish().text == "ab"


def copied_stream(source: str, emitted: list[tuple[int, int | None]]):
    encoded = CHAT.encode_source(source, "")
    stream = TextStream(TOKENIZER, [], (), source, encoded.offsets)
    deltas = []
    for token, index in emitted:
        stream.feed(token, index)
        if delta := stream.take():
            deltas.append(delta)
    if delta := stream.finish():
        deltas.append(delta)
    return deltas


SOURCE = "def area(width, héight):\n    return width * 😀height\n"


def test_a_copied_source_is_reported_as_one_run_per_delta() -> None:
    tokens = CHAT.encode_source(SOURCE, "").tokens
    deltas = copied_stream(SOURCE, [(token, i) for i, token in enumerate(tokens)])
    assert "".join(delta.text for delta in deltas) == SOURCE
    at = 0
    for delta in deltas:
        assert [tuple(run) for run in delta.copied] == [(0, at, len(delta.text))]
        at += len(delta.text)


@given(st.data())
def test_every_reported_run_is_a_true_copy(data) -> None:
    source = data.draw(st.sampled_from([SOURCE, "x = 1\nx = 1\nx = 2\n", "é😀é😀\n"]))
    tokens = CHAT.encode_source(source, "").tokens
    emitted = []
    for index, token in enumerate(tokens):
        choice = data.draw(st.sampled_from(["copy", "lie", "new", "skip"]))
        if choice == "copy":
            emitted.append((token, index))
        elif choice == "lie":
            emitted.append((token, data.draw(st.integers(0, len(tokens) + 2))))
        elif choice == "new":
            emitted.append((token, None))
    for delta in copied_stream(source, emitted):
        for run in delta.copied:
            assert run.length > 0
            part = delta.text[run.start : run.start + run.length]
            assert part == source[run.source_start : run.source_start + run.length]


@pytest.mark.parametrize("text", ["", "plain", "with <|im_end|> inside", "``` `` `"])
def test_the_source_tokens_decode_to_the_source_and_its_stop_text(text) -> None:
    encoded = CHAT.encode_source(text, "\n```")
    assert TOKENIZER.decode(encoded.tokens, skip_special_tokens=True) == text + "\n```"
    assert len(encoded.tokens) == len(encoded.offsets)
