"""What single tokens spell, in bytes: the drafters make drafts from characters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tokenizers.decoders import ByteLevel


def pieces_of(tokenizer: Any) -> Callable[[int], bytes]:
    """Return a function from token ids to the bytes that they spell.

    Args:
        tokenizer: a `tokenizers.Tokenizer`.
    """
    alphabet = _byte_alphabet() if isinstance(tokenizer.decoder, ByteLevel) else None
    added = set(tokenizer.get_added_tokens_decoder())
    anchor = tokenizer.encode("a", add_special_tokens=False).ids
    anchored = tokenizer.decode(anchor, skip_special_tokens=False)

    def piece(token: int) -> bytes:
        spelled = tokenizer.id_to_token(token)
        if spelled is None:
            return b""
        if alphabet is not None and token not in added:
            return bytes(alphabet.get(character, 63) for character in spelled)
        if token in added:
            return spelled.encode()
        # Decoded behind another token, since decoders strip the space that begins a text.
        text = tokenizer.decode([*anchor, token], skip_special_tokens=False)
        return text[len(anchored) :].encode()

    return piece


def _byte_alphabet() -> dict[str, int]:
    """Return the byte of each character in the spelling of byte-level tokens.

    Printable bytes stand for themselves; the others, in order, for the characters from
    256 on (Radford et al. 2019).
    """
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    alphabet = {chr(byte): byte for byte in plain}
    alphabet.update({chr(256 + number): byte for number, byte in enumerate(others)})
    return alphabet
