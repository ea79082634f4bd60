from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from drafters.text import CHUNK, Text
from engine.pieces import pieces_of

CODE = {
    "python": "def total(items: list[int]) -> int:\n    # sum up\n    return sum(items)\n\n\n",
    "rust": "fn main() {\n    let mut v: Vec<u8> = vec![1, 2];\n    v.push(3);\n}\n",
    "go": 'func Add(a, b int) (int, error) {\n\tif a < 0 {\n\t\tb++\n\t}\n\n\treturn a, nil\n}\n',
    "java": "class Cart {\n  private final int size;\n\n  Cart(int n) { size = n; }\n}\n",
    "javascript": "const f = async (x) => {\n  await g(x);\n  return x?.y ?? `${x}`;\n};\n",
    "typescript": "export type Id<T> = { id: string; of?: T };\n\nlet ids: Id<number>[] = [];\n",
    "php": "<?php\nfunction f(array $xs): int {\n    return count($xs) ?: 0;\n}\n",
    "c": "#include <stdio.h>\n\nint main(void) {\n  printf(\"%d\\n\", 3);\n}\n",
    "cpp": "template <typename T>\nauto size(const T& t) -> std::size_t {\n  return t.size();\n}\n",
    "ruby": "def each(&block)\n  @items.each { |item| block.call(item) }\nend\n",
}  # fmt: skip

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2's tokeniser splits a text before it joins pairs of bytes."""


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """Return a byte-level tokeniser that splits as Qwen2's does, trained on `CODE`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*CODE.values()] * 3, trainer)
    return tokenizer


def encode(tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("language", CODE)
def test_text_is_continued_with_the_very_tokens_of_the_whole(tokenizer, language) -> None:
    code = CODE[language]
    whole = encode(tokenizer, code)
    text = Text(pieces_of(tokenizer), lambda more: encode(tokenizer, more))
    for index, token in enumerate(whole):
        rest = CHUNK.match(code.encode()[len(text.written) :])
        assert rest
        made = text.continued(rest.group()) or []
        assert made
        assert made == whole[index : index + len(made)]
        assert b"".join(map(text.pieces, made)) == rest.group()
        if text.append(token):
            text.start_line()
    assert text.written.decode() == code


PARTS = st.lists(
    st.sampled_from([*"aB_1 \t\n;()'é", "self.", "  ", "\n\n", "foo", "// ", "\n \n"]), max_size=20
).map("".join)


@settings(deadline=None, max_examples=200)
@given(PARTS, PARTS)
def test_a_seam_is_tokenised_as_the_model_would_or_not_at_all(tokenizer, before, after) -> None:
    written = encode(tokenizer, before)
    text = Text(pieces_of(tokenizer), lambda more: encode(tokenizer, more))
    for token in written:
        if text.append(token):
            text.start_line()
    line = CHUNK.match(after.encode() or b"\n")
    assert line
    made = text.continued(line.group())
    if made is not None and not text.at_line_start:
        whole = encode(tokenizer, before + line.group().decode())
        assert [*written, *made] == whole


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from([*CODE.values(), "\n", "   \n", "x\n"]), max_size=6))
def test_lines_are_tokenised_apart_as_together(tokenizer, parts) -> None:
    code = "x\n" + "".join(parts)
    chunks = [match.group().decode() for match in CHUNK.finditer(code.encode())]
    assert "".join(chunks) == code
    assert [t for chunk in chunks for t in encode(tokenizer, chunk)] == encode(tokenizer, code)


def test_half_a_character_is_not_tokenised(tokenizer) -> None:
    text = Text(pieces_of(tokenizer), lambda more: encode(tokenizer, more))
    assert text.tokenize("é".encode()[:1]) is None


def test_pieces_spell_the_bytes_and_special_tokens_their_names(tokenizer) -> None:
    piece = pieces_of(tokenizer)
    assert b"".join(map(piece, encode(tokenizer, "é\t\n𝛼 x"))) == "é\t\n𝛼 x".encode()
    assert piece(tokenizer.token_to_id("<|end|>")) == b"<|end|>"
    assert piece(10**6) == b""
