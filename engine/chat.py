"""From chat messages to prompt tokens, and from the source to source tokens.

The template comes from the model's own tokenizer. The text of messages is data: a
special token spelled out in somebody's code stays text and never ends a turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jinja2 import TemplateSyntaxError
from tokenizers import Encoding

from engine.core import EngineError, GenerationRequest, Message
from engine.template import ChatTemplate
from engine.vocabulary import Vocabulary


class SourceTokens(NamedTuple):
    """The source as the answer would hold it.

    Attributes:
        tokens: token ids of the source and of the stop text behind it.
        offsets: (start, end) in characters of each of them.
    """

    tokens: list[int]
    offsets: list[tuple[int, int]]


class Chat:
    """Encodes prompts for one model.

    Args:
        vocabulary: of that model.

    Raises:
        EngineError: `unsupported_model`: it has no chat template, or a damaged one.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        if not vocabulary.template:
            raise EngineError(
                "unsupported_model",
                "This model has no chat template, so it cannot follow an instruction; "
                "use an instruct (chat) variant of it.",
            )
        try:
            self._template = ChatTemplate(vocabulary.template, vocabulary.names)
        except TemplateSyntaxError as error:
            raise EngineError(
                "unsupported_model",
                f"The model's chat template is damaged ({str(error).rstrip('.')}); "
                "fetch the model anew.",
            ) from error
        self._tokenizer = vocabulary.tokenizer
        added = self._tokenizer.get_added_tokens_decoder().values()
        self._special = tuple(token.content for token in added if token.content)

    def encode_prompt(self, request: GenerationRequest) -> list[int]:
        """Return the prompt's token ids, an opened assistant message included."""
        messages = list(request.messages)
        opened = ""
        if request.continue_final_message:
            if not messages or messages[-1].role != "assistant":
                raise EngineError(
                    "invalid_request",
                    "`continue_final_message` needs a last message of the assistant.",
                )
            opened = messages.pop().content
        contents = [message.content for message in messages] + [opened]
        if not any(special in content for content in contents for special in self._special):
            return self._encode(self._render(messages) + opened)
        return self._encode_around(messages, opened)

    def encode_source(self, source: str, stop: str) -> SourceTokens:
        """Return the tokens of `source + stop`: where the source ends, the stop text follows."""
        encoded = self._encoding(source + stop, split_special=True)
        return SourceTokens(encoded.ids, encoded.offsets)

    def _render(self, messages: Sequence[Message]) -> str:
        try:
            return self._template.render(messages)
        except Exception as error:  # the template is the model's own program
            raise EngineError(
                "invalid_request",
                f"The model's chat template refused the messages: {str(error).rstrip('.')}.",
            ) from error

    def _encode(self, text: str, split_special: bool = False) -> list[int]:
        return self._encoding(text, split_special).ids

    def _encoding(self, text: str, split_special: bool) -> Encoding:
        self._tokenizer.encode_special_tokens = split_special
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _encode_around(self, messages: Sequence[Message], opened: str) -> list[int]:
        """Encode the template and the messages' texts apart from each other."""
        marks = [f"\ue000{number}\ue001" for number in range(len(messages))]
        rest = self._render(
            [Message(m.role, mark) for m, mark in zip(messages, marks, strict=True)]
        )
        tokens: list[int] = []
        for message, mark in zip(messages, marks, strict=True):
            before, found, after = rest.partition(mark)
            if not found:
                continue  # some templates leave messages out
            tokens += self._encode(before) + self._encode(message.content, split_special=True)
            rest = after
        return tokens + self._encode(rest) + self._encode(opened, split_special=True)
