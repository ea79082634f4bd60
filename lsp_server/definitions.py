"""Definitions in a syntax tree: which nodes they are and what they are called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tree_sitter import Node

from lsp_server.span_rules import RULES, SpanRules
from lsp_server.syntax import SyntaxTree

_LONGEST_CHAIN = 12
_LONGEST_DECLARATOR = 32
_NAME_FIELDS = ("name", "left", "key", "property", "declarator", "pattern")
_SEPARATORS = re.compile(r"::|->|[.:#\\]")
_BRACKETED = re.compile(r"<[^<>]*>|\[[^][]*\]|\([^()]*\)")


class Definition(NamedTuple):
    """One definition.

    Attributes:
        outer: the node with all that wraps the definition: decorators, `export`, the statement.
        core: the function or class itself.
        kind: `function` or `class`.
        names: its own name in parts, e.g. ("Type", "method"); empty when it has none.
        scope: what its members are under; differs from `names` for an `impl` only.
    """

    outer: Node
    core: Node
    kind: str
    names: tuple[str, ...]
    scope: tuple[str, ...]


class Scope(NamedTuple):
    """A range whose definitions have a longer name: a namespace, an object in a variable."""

    node: Node
    names: tuple[str, ...]


def definitions_among(
    nodes: Iterable[Node], tree: SyntaxTree, language: str
) -> Iterator[Definition | Scope]:
    """Yield the definitions and scopes that begin at the given nodes, which are in preorder."""
    rules = RULES[language]
    claimed: set[int] = set()
    for node in nodes:
        if node.id in claimed or not node.is_named:
            continue
        chain = _chain(node, rules)
        if chain:
            claimed.update(link.id for link in chain)
            yield _definition(chain, tree, rules)
        elif node.type in rules.scopes:
            name = _step(node, rules.scopes[node.type])
            yield Scope(node, name_parts(tree.text_of(name)) if name else ())


def all_definitions(tree: SyntaxTree, language: str) -> Iterator[Definition | Scope]:
    """Yield every definition and scope of the tree, outer ones first, in order."""
    rules = RULES[language]
    kinds = rules.functions | rules.classes | rules.steps.keys() | rules.scopes.keys()
    return definitions_among(tree.nodes_of(kinds), tree, language)


def _chain(node: Node, rules: SpanRules) -> list[Node]:
    """Return the nodes from `node` down to the definition that it wraps; [] for none."""
    if _is_core(node, rules):
        return [node]
    if node.type in rules.links or (
        node.type in rules.receiverless and node.child_by_field_name("receiver") is not None
    ):
        return []
    chain = [node]
    while len(chain) < _LONGEST_CHAIN:
        last = chain[-1]
        for step in rules.steps.get(last.type, ()):
            child = _step(last, step)
            if child is not None and (child.type in rules.steps or _is_end(child, rules)):
                break
        else:
            return []
        chain.append(child)
        if _is_end(child, rules):
            return chain
    return []


def _step(node: Node, step: str) -> Node | None:
    if step.startswith("."):
        return node.child_by_field_name(step[1:])
    of_kind = [child for child in node.named_children if child.type == step]
    return of_kind[0] if len(of_kind) == 1 else None


def _is_core(node: Node, rules: SpanRules) -> bool:
    kind = node.type
    if kind not in rules.functions and kind not in rules.classes:
        return False
    return kind not in rules.bodied or node.child_by_field_name("body") is not None


def _is_end(node: Node, rules: SpanRules) -> bool:
    return node.type in rules.values or node.type in rules.class_values or _is_core(node, rules)


def _definition(chain: list[Node], tree: SyntaxTree, rules: SpanRules) -> Definition:
    core = chain[-1]
    is_class = core.type in rules.classes or core.type in rules.class_values
    names = _names(chain, tree, rules)
    scope = names
    if core.type == "impl_item":  # Rust: its members are the type's, it is not the type
        names = (f"impl {names[-1]}",) if names else ()
    elif core.type == "method_declaration":
        receiver = core.child_by_field_name("receiver")  # Go only
        if receiver is not None:
            names = (*_receiver(tree.text_of(receiver)), *names)
            scope = names
    return Definition(chain[0], core, "class" if is_class else "function", names, scope)


def _names(chain: list[Node], tree: SyntaxTree, rules: SpanRules) -> tuple[str, ...]:
    core = chain[-1]
    if core.type == "impl_item":
        node = core.child_by_field_name("type")
        return name_parts(tree.text_of(node))[-1:] if node else ()
    if core.type == "secondary_constructor":
        return ("constructor",)
    if core.type == "singleton_class":
        return ("self",)
    if core.type == "operator_declaration":
        sign = core.child_by_field_name("operator")
        return (f"operator{tree.text_of(sign)}" if sign else "operator",)
    if core.type == "destructor_declaration":
        node = core.child_by_field_name("name")
        return (f"~{tree.text_of(node)}",) if node else ()
    own = core.child_by_field_name("name")
    if own is None and core.child_by_field_name("declarator") is not None:
        own = core
    given = next(filter(None, (_naming_child(link, chain) for link in reversed(chain[:-1]))), None)
    node = own or given if _is_core(core, rules) else given or own
    if node is not None:
        return name_parts(tree.text_of(_innermost_declarator(node)))
    if core.type == "companion_object":
        return ("Companion",)
    if core.type == "indexer_declaration":
        return ("this",)
    return ("default",) if chain[0].type == "export_statement" else ()


def _naming_child(link: Node, chain: list[Node]) -> Node | None:
    """Return the child that names the value at the chain's end, e.g. an assignment's left."""
    in_chain = {node.id for node in chain}
    for field in _NAME_FIELDS:
        node = link.child_by_field_name(field)
        if node is not None and node.id not in in_chain:
            return node
    for kind in ("variable_list", "variable_declaration"):  # Lua, Kotlin
        node = _step(link, kind)
        if node is not None and node.id not in in_chain:
            return node.named_child(0)
    return None


def _innermost_declarator(node: Node) -> Node:
    """Return the name inside a C or C++ declarator such as `*(*f(int))[3]`."""
    for _ in range(_LONGEST_DECLARATOR):
        inner = node.child_by_field_name("declarator")
        if inner is None and node.type.endswith("_declarator"):
            parts = (part for part in node.named_children if "attribute" not in part.type)
            inner = next(parts, None)
        if inner is None:
            return node
        node = inner
    return node


def _receiver(text: str) -> tuple[str, ...]:
    words = re.findall(r"\w+", _without_brackets(text[1:-1]))
    return tuple(words[-1:])


def name_parts(text: str) -> tuple[str, ...]:
    """Split a name as written, such as `A::f`, `M.x:y` or `B<T>.c`, into its plain parts."""
    text = text.strip()[:1000]
    head, operator, sign = text.partition("operator")
    if operator and not re.match(r"\w", sign) and (not head or not re.search(r"\w$", head)):
        return (*name_parts(head), operator + "".join(sign.split()))
    parts = (part.strip(" \t\r\n'\"`$@[]()") for part in _SEPARATORS.split(_without_brackets(text)))
    return tuple(part for part in parts if part and part not in ("prototype", "this", "self"))


def _without_brackets(text: str) -> str:
    previous = ""
    while previous != text:
        previous, text = text, _BRACKETED.sub("", text)
    return text
