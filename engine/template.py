"""Renders a model's chat template: Jinja, in a sandbox, with what such templates may use.

Templates come with checkpoints and are programs of strangers. They see messages and the
names of special tokens, and nothing of Python. transformers renders them the same way
(https://huggingface.co/docs/transformers/chat_templating_writing), but takes a second to
import; tests compare the two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from engine.core import Message


class ChatTemplate:
    """A compiled template.

    Args:
        text: the template.
        names: special tokens by the names that templates know them by, such as `eos_token`.

    Raises:
        jinja2.TemplateSyntaxError: it is damaged.
    """

    def __init__(self, text: str, names: Mapping[str, Any]) -> None:
        self._template = _environment().from_string(text)
        self._names = dict(names)

    def render(self, messages: Sequence[Message]) -> str:
        """Return the text of `messages` with the assistant's turn opened.

        Raises:
            Exception: whatever the template's own program raises.
        """
        return self._template.render(
            **self._names,
            messages=[{"role": message.role, "content": message.content} for message in messages],
            tools=None,
            documents=None,
            add_generation_prompt=True,
        )


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals = {
        "range": environment.globals["range"],
        "dict": _new_dict,
        "namespace": _Variables,
        "raise_exception": _refuse,
        "strftime_now": _now,
    }
    return environment


class _Generation(Extension):
    """`{% generation %}` marks what the assistant wrote; for rendering it is only its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own way

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Variables(Namespace):
    """jinja2's namespace without names that begin with an underscore, Python's own."""

    def __init__(*args: Any, **values: Any) -> None:
        # No parameter of this has a name, so that a template may use any, `self` too.
        itself, *rest = args
        given = dict(*rest, **values)
        for name in given:
            _check_name(name)
        Namespace.__init__(itself, given)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: Any) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"a chat template may not use the name {name!r}")


def _new_dict(*pairs: Any, **values: Any) -> dict[Any, Any]:
    return dict(*pairs, **values)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter spells <, > and & as a web page needs them.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)
