"""The edits that are replayed: read, checked, and tokenised as the engine would."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.replay.neighbours import files_beside
from drafters.core import DraftContext
from drafters.workspace import build_index
from engine.chat import Chat
from engine.core import EngineError, GenerationRequest, Message
from engine.pieces import pieces_of
from engine.store import resolve
from engine.vocabulary import vocabulary_of
from lsp_server.core import RewriteRequest, Span
from lsp_server.prompts import build_prompt

FIELDS = ("id", "language", "instruction", "before", "after")
"""What an edit must have; `kind` and `copy_ratio` are used where they are there."""


class BadInput(Exception):
    """A sentence for people: what is wrong with what they gave."""


class Item(NamedTuple):
    """One edit to replay.

    Attributes:
        id: of the edit.
        groups: what it belongs to: `kind`, `language`, `copy_ratio` as a range.
        context: what a drafter is told.
        reference: token ids of the answer, closing fence and end token included.
        beside: token ids of the workspace's other files, for drafters that read them
            (benchmarks/replay/neighbours.py).
    """

    id: str
    groups: Mapping[str, str]
    context: DraftContext
    reference: list[int]
    beside: Sequence[Sequence[int]] = ()

    def in_workspace(self) -> Item:
        """Return the item as a drafter is told of it that knows the workspace."""
        return self._replace(context=replace(self.context, workspace=build_index(self.beside)))


class Tokens(NamedTuple):
    """A tokenizer as prompts and drafters need it."""

    chat: Chat
    pieces: Callable[[int], bytes]
    tokenize: Callable[[str], list[int]]
    end: int


def read_edits(file: Path, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the edits of a file of JSON lines.

    Raises:
        BadInput: there is no such file, or a line is no edit.
    """
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file} cannot be read as text; give a file of JSON lines.") from error
    found = []
    for number, line in enumerate(lines, 1):
        if limit is not None and len(found) >= limit:
            break
        try:
            edit = json.loads(line)
        except ValueError:
            edit = None
        if not isinstance(edit, dict) or not all(isinstance(edit.get(f), str) for f in FIELDS):
            raise BadInput(
                f"Line {number} of {file.name} is no edit: it must be a JSON object with the "
                f"texts {', '.join(FIELDS)}."
            )
        found.append(edit)
    if not found:
        raise BadInput(f"{file.name} holds no edits.")
    return found


def load_tokens(name: str) -> Tokens:
    """Return the tokenizer of a model of the store or of a folder.

    Raises:
        BadInput: there is none.
    """
    from transformers import AutoTokenizer

    try:
        folder = resolve(name, lambda progress: None, lambda: False)
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        vocabulary = vocabulary_of(name, tokenizer, folder)
        chat = Chat(vocabulary)
    except (EngineError, OSError, ValueError) as error:
        raise BadInput(f"There is no tokenizer for {name}: {error}") from error
    backend = vocabulary.tokenizer

    def tokenize(text: str) -> list[int]:
        return backend.encode(text, add_special_tokens=False).ids

    return Tokens(chat, pieces_of(backend), tokenize, tokenizer.eos_token_id)


def items_of(edits: Iterable[Mapping[str, Any]], tokens: Tokens) -> Iterator[Item]:
    """Yield the edits as the engine would be asked for them.

    The prompt is the product's own. The answer is `after`, then the closing fence as the
    prompt names it, then the end token.
    """
    edits = list(edits)
    for edit, beside in zip(edits, files_beside(edits, tokens.tokenize), strict=True):
        before = edit["before"]
        prompt = build_prompt(
            RewriteRequest(before, Span(0, len(before)), edit["language"], edit["instruction"])
        )
        messages = tuple(Message(m["role"], m["content"]) for m in prompt.messages)
        request = GenerationRequest("replay", messages, continue_final_message=True)
        stop = prompt.stop[0]
        context = DraftContext(
            tokens.chat.encode_prompt(request),
            tokens.chat.encode_source(prompt.source, stop).tokens,
            edit["instruction"],
            tokens.pieces,
            tokens.tokenize,
        )
        reference = [*tokens.chat.encode_source(edit["after"], stop).tokens, tokens.end]
        yield Item(edit["id"], _groups(edit), context, reference, beside)


def _groups(edit: Mapping[str, Any]) -> dict[str, str]:
    groups = {"language": edit["language"], "kind": str(edit.get("kind", "unknown"))}
    ratio = edit.get("copy_ratio")
    if isinstance(ratio, int | float):
        groups["copy_ratio"] = next(name for least, name in COPY_RANGES if ratio >= least)
    return groups


COPY_RANGES: Sequence[tuple[float, str]] = (
    (0.95, "0.95 and above"),
    (0.8, "0.8 to 0.95"),
    (0.5, "0.5 to 0.8"),
    (0.0, "below 0.5"),
)
