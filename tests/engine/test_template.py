from __future__ import annotations

import pytest
from jinja2 import TemplateError
from jinja2.exceptions import SecurityError
from transformers.utils.chat_template_utils import render_jinja_template

from engine.core import Message
from engine.template import ChatTemplate
from tests.tiny import CHATML

NAMES = {"bos_token": "<s>", "eos_token": "</s>"}
MESSAGES = (
    Message("system", "be <brief> & exact"),
    Message("user", "  héllo 😀\n```python\nx = {{ 1 }}\n"),
    Message("assistant", "no"),
    Message("user", "again"),
)

TEMPLATES = {
    "ChatML": CHATML,
    "a turn with variables": """\
{%- set ns = namespace(system='', count=0) %}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {%- set ns.system = message.content | trim %}
    {%- else %}
        {%- set ns.count = ns.count + 1 %}
[{{ message['role'] | upper }} {{ ns.count }}] {{ ns.system }}{{ message.content }}{{ eos_token }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ bos_token }}>{% endif %}
""",
    "loops that are left, JSON and marked answers": """\
{% for message in messages %}
    {% if message.role == "system" %}{% continue %}{% endif %}
    {% if loop.index > 3 %}{% break %}{% endif %}
    {% if message.role == "assistant" %}
{% generation %}{{ message.content }}{% endgeneration %}

    {% else %}
{{ message | tojson }} {{ [1, {"a": "<é>"}] | tojson(indent=2) }}
    {% endif %}
{% endfor %}
""",
    "tools, documents and undefined names": """\
{%- if tools is not none %}tools{% endif %}{% if not documents %}none{% endif %}
{%- if thinking is defined and thinking %}thinks{% endif %}
{{- dict(a=1).get('a') }}{% for number in range(3) %}{{ number }}{% endfor %}
{{- messages[-1]['content'][:3] }}{{ messages | selectattr('role', 'eq', 'user') | list | length }}
""",
    "a macro": """\
{%- macro turn(message) -%}<{{ message.role }}>{{ message.content.split('`')[0] }}{%- endmacro -%}
{% for message in messages %}{{ turn(message) }}{% endfor %}
""",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_rendered_as_transformers_renders_it(name: str) -> None:
    template = TEMPLATES[name]
    (wanted,), _ = render_jinja_template(
        conversations=[[{"role": m.role, "content": m.content} for m in MESSAGES]],
        chat_template=template,
        add_generation_prompt=True,
        **NAMES,
    )
    assert len(wanted) > 10
    assert ChatTemplate(template, NAMES).render(MESSAGES) == wanted


@pytest.mark.parametrize(
    "program",
    [
        "{{ messages.__class__ }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ dict.__subclasses__() }}",
        "{{ strftime_now.__code__ }}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{% set ns = namespace(_Namespace__attrs=1) %}",
        "{{ namespace({'__class__': 1}) }}",
        "{{ lipsum.__globals__ }}",
        "{{ cycler.__init__ }}",
        "{% include 'secrets' %}",
    ],
)
def test_a_template_reaches_nothing_of_python(program: str) -> None:
    try:
        rendered = ChatTemplate(program, NAMES).render(MESSAGES)
    except (SecurityError, TemplateError, TypeError):
        return
    assert rendered == ""


def test_a_template_may_refuse_messages_in_its_own_words() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}", {})
    with pytest.raises(TemplateError, match="roles must alternate"):
        template.render(MESSAGES)
