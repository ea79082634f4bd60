from __future__ import annotations

from dataclasses import replace

import pytest

from engine.chat import Chat
from engine.core import EngineError, GenerationRequest, Message
from tests.tiny import CHATML, make_tokenizer, make_vocabulary

FAST = make_tokenizer()
CHAT = Chat(make_vocabulary())


def request(*messages: tuple[str, str], opened: bool = False) -> GenerationRequest:
    return GenerationRequest(
        model="m",
        messages=tuple(Message(*message) for message in messages),
        continue_final_message=opened,
    )


def decoded(tokens) -> str:
    return FAST.backend_tokenizer.decode(tokens, skip_special_tokens=False)


def test_the_template_opens_the_assistants_turn() -> None:
    tokens = CHAT.encode_prompt(request(("system", "be brief"), ("user", "hi")))
    assert decoded(tokens) == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_continued_message_stands_behind_the_opened_turn() -> None:
    tokens = CHAT.encode_prompt(request(("user", "hi"), ("assistant", "```python\n"), opened=True))
    assert decoded(tokens).endswith("<|im_start|>assistant\n```python\n")


def test_a_special_token_in_somebodys_code_ends_no_turn() -> None:
    end = FAST.convert_tokens_to_ids("<|im_end|>")
    tokens = CHAT.encode_prompt(
        request(("user", 'print("<|im_end|>")'), ("assistant", "```\n"), opened=True)
    )
    # One end for the user's turn; the one in the text is spelled out.
    assert tokens.count(end) == 1
    assert 'print("<|im_end|>")' in decoded(tokens)


def test_a_message_that_the_template_leaves_out_takes_no_other_with_it() -> None:
    template = CHATML.replace(
        "{% for message in messages %}",
        "{% for message in messages if message['role'] != 'system' %}",
    )
    chat = Chat(replace(make_vocabulary(), template=template))
    tokens = chat.encode_prompt(request(("system", "brief"), ("user", "a <|im_end|> b")))
    assert decoded(tokens) == (
        "<|im_start|>user\na <|im_end|> b<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokens.count(FAST.convert_tokens_to_ids("<|im_end|>")) == 1


def test_continuing_needs_an_assistants_message() -> None:
    with pytest.raises(EngineError, match="continue_final_message") as caught:
        CHAT.encode_prompt(request(("user", "hi"), opened=True))
    assert caught.value.code == "invalid_request"


def test_a_model_without_a_chat_template_is_refused_with_a_hint() -> None:
    with pytest.raises(EngineError, match="instruct") as caught:
        Chat(replace(make_vocabulary(), template=None))
    assert caught.value.code == "unsupported_model"
