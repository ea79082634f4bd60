"""What a definition looks like in each language's syntax tree, as data.

Kinds are the node kinds of the grammar wheels. A definition is found in one of two ways:
its node names itself (`functions`, `classes`), or it is a value (`values`) that a chain of
steps reaches from a statement or member that names it, as in `const f = () => 1`. The
outermost node of the chain is what belongs to the definition: the decorated definition,
the export, the whole statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SpanRules:
    """How to find the definitions of one language.

    Attributes:
        functions, classes: kinds that are definitions by themselves.
        values, class_values: kinds that are definitions only at the end of a chain.
        steps: for a kind, where a chain goes on: `.name` is the child in that field, a
            bare name is the only child of that kind (two are two definitions, each its own).
        links: kinds of `steps` that carry a chain on but do not begin one.
        bodied: kinds of `functions` and `classes` that count only with a `body` field.
        receiverless: kinds of `steps` that count only without a `receiver` field.
        attributes: siblings in front of a definition that belong to it.
        scopes: kinds that are no spans but lend their name to what is inside, with the
            step to the name.
    """

    functions: frozenset[str]
    classes: frozenset[str]
    values: frozenset[str] = frozenset()
    class_values: frozenset[str] = frozenset()
    steps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    links: frozenset[str] = frozenset()
    bodied: frozenset[str] = frozenset()
    receiverless: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    scopes: Mapping[str, str] = field(default_factory=dict)


def _kinds(names: str) -> frozenset[str]:
    return frozenset(names.split())


_PYTHON = SpanRules(
    functions=_kinds("function_definition"),
    classes=_kinds("class_definition"),
    values=_kinds("lambda"),
    steps={
        "decorated_definition": (".definition",),
        "expression_statement": ("assignment",),
        "assignment": (".right",),
    },
)

_JAVASCRIPT_FUNCTIONS = _kinds(
    "function_declaration generator_function_declaration method_definition"
)
_JAVASCRIPT_STEPS: dict[str, tuple[str, ...]] = {
    "export_statement": (".declaration", ".value"),
    "lexical_declaration": ("variable_declarator",),
    "variable_declaration": ("variable_declarator",),
    "variable_declarator": (".value",),
    # A function expression as a statement is a declaration in a text with errors.
    "expression_statement": ("assignment_expression", "function_expression"),
    "assignment_expression": (".right",),
    "pair": (".value",),
}
_JAVASCRIPT = SpanRules(
    functions=_JAVASCRIPT_FUNCTIONS,
    classes=_kinds("class_declaration"),
    values=_kinds("arrow_function function_expression generator_function"),
    class_values=_kinds("class"),
    steps={**_JAVASCRIPT_STEPS, "field_definition": (".value",)},
    scopes={"variable_declarator": ".name", "pair": ".key"},
)
_TYPESCRIPT = SpanRules(
    functions=_JAVASCRIPT_FUNCTIONS
    | _kinds("function_signature method_signature abstract_method_signature"),
    classes=_kinds(
        "class_declaration abstract_class_declaration interface_declaration enum_declaration"
        " internal_module module"
    ),
    values=_JAVASCRIPT.values,
    class_values=_JAVASCRIPT.class_values,
    steps={
        **_JAVASCRIPT_STEPS,
        "expression_statement": ("assignment_expression", "internal_module", "function_expression"),
        "public_field_definition": (".value",),
        "ambient_declaration": (
            "function_signature",
            "class_declaration",
            "abstract_class_declaration",
            "interface_declaration",
            "enum_declaration",
            "internal_module",
            "module",
        ),
    },
    attributes=_kinds("decorator"),
    scopes=_JAVASCRIPT.scopes,
)

_GO = SpanRules(
    functions=_kinds("function_declaration method_declaration"),
    classes=frozenset(),
    values=_kinds("func_literal"),
    class_values=_kinds("struct_type interface_type"),
    steps={
        "type_declaration": ("type_spec",),
        "type_spec": (".type",),
        "var_declaration": ("var_spec", "var_spec_list"),
        "var_spec_list": ("var_spec",),
        "var_spec": (".value",),
        "short_var_declaration": (".right",),
        "assignment_statement": (".right",),
        "expression_list": ("func_literal",),
    },
    links=_kinds("var_spec_list expression_list"),
)

_RUST = SpanRules(
    functions=_kinds("function_item function_signature_item macro_definition"),
    classes=_kinds("struct_item enum_item union_item trait_item impl_item mod_item"),
    values=_kinds("closure_expression"),
    steps={"static_item": (".value",), "const_item": (".value",)},
    bodied=_kinds("mod_item"),
    attributes=_kinds("attribute_item"),
)

_C_RECORDS = _kinds("struct_specifier union_specifier enum_specifier")
_C_STEPS: dict[str, tuple[str, ...]] = {
    "type_definition": (".type",),
    "declaration": (".type", ".declarator"),
    "field_declaration": (".type",),
    "linkage_specification": (".body",),
}
_C = SpanRules(
    functions=_kinds("function_definition"),
    classes=_C_RECORDS,
    steps=_C_STEPS,
    bodied=_C_RECORDS,
)
_CPP = SpanRules(
    functions=_C.functions,
    classes=_C_RECORDS | _kinds("class_specifier"),
    values=_kinds("lambda_expression"),
    steps={
        **_C_STEPS,
        "init_declarator": (".value",),
        "template_declaration": (
            "function_definition",
            "class_specifier",
            "struct_specifier",
            "union_specifier",
            "template_declaration",
            "declaration",
        ),
    },
    bodied=_C_RECORDS | _kinds("class_specifier"),
    scopes={"namespace_definition": ".name"},
)

_JAVA = SpanRules(
    functions=_kinds("method_declaration constructor_declaration compact_constructor_declaration"),
    classes=_kinds(
        "class_declaration interface_declaration enum_declaration record_declaration"
        " annotation_type_declaration"
    ),
    values=_kinds("lambda_expression"),
    steps={"field_declaration": ("variable_declarator",), "variable_declarator": (".value",)},
    # A local variable's lambda belongs to its method: only a field begins a chain.
    links=_kinds("variable_declarator"),
)

_CSHARP = SpanRules(
    functions=_kinds(
        "method_declaration constructor_declaration destructor_declaration operator_declaration"
        " conversion_operator_declaration local_function_statement property_declaration"
        " indexer_declaration event_declaration"
    ),
    classes=_kinds(
        "class_declaration struct_declaration interface_declaration enum_declaration"
        " record_declaration"
    ),
    values=_kinds("lambda_expression anonymous_method_expression"),
    steps={
        "field_declaration": ("variable_declaration",),
        "variable_declaration": ("variable_declarator",),
        "variable_declarator": ("lambda_expression", "anonymous_method_expression"),
    },
    links=_kinds("variable_declaration variable_declarator"),
    scopes={"namespace_declaration": ".name"},
)

_RUBY = SpanRules(
    functions=_kinds("method singleton_method"),
    classes=_kinds("class module singleton_class"),
    values=_kinds("lambda"),
    steps={
        "assignment": (".right",),
        "call": (".arguments",),
        "argument_list": ("method", "singleton_method"),
    },
    links=_kinds("argument_list"),
    receiverless=_kinds("call"),  # `private def f`, not `a.b(def f)`
)

_PHP = SpanRules(
    functions=_kinds("function_definition method_declaration"),
    classes=_kinds("class_declaration interface_declaration trait_declaration enum_declaration"),
    values=_kinds("anonymous_function arrow_function"),
    steps={
        "expression_statement": ("assignment_expression",),
        "assignment_expression": (".right",),
    },
    scopes={"namespace_definition": ".name"},
)

_KOTLIN = SpanRules(
    functions=_kinds("function_declaration secondary_constructor"),
    classes=_kinds("class_declaration object_declaration companion_object"),
    values=_kinds("lambda_literal anonymous_function getter setter"),
    steps={"property_declaration": ("lambda_literal", "anonymous_function", "getter", "setter")},
)

_LUA = SpanRules(
    functions=_kinds("function_declaration"),
    classes=frozenset(),
    values=_kinds("function_definition"),
    steps={
        "variable_declaration": ("assignment_statement",),
        "assignment_statement": ("expression_list",),
        "expression_list": ("function_definition",),
        "field": (".value",),
    },
    links=_kinds("expression_list"),
    scopes={"field": ".name", "assignment_statement": "variable_list"},
)

RULES: Mapping[str, SpanRules] = {
    "python": _PYTHON,
    "javascript": _JAVASCRIPT,
    "javascriptreact": _JAVASCRIPT,
    "typescript": _TYPESCRIPT,
    "typescriptreact": _TYPESCRIPT,
    "go": _GO,
    "rust": _RUST,
    "c": _C,
    "cpp": _CPP,
    "java": _JAVA,
    "csharp": _CSHARP,
    "ruby": _RUBY,
    "php": _PHP,
    "kotlin": _KOTLIN,
    "lua": _LUA,
}
