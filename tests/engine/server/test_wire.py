from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import EngineError, GenerationRequest, Message, Workspace
from engine.server.wire import InvalidRequest, ParsedRequest, parse_body, parse_request

USER = [{"role": "user", "content": "Rename a to b."}]


def request(**keys: Any) -> dict[str, Any]:
    return {"model": "m", "messages": USER, **keys}


def parsed(**keys: Any) -> GenerationRequest:
    return parse_request(request(**keys), "the-default").request


def test_a_bare_request_is_greedy_drafted_and_not_streamed():
    expected = GenerationRequest(model="m", messages=(Message("user", "Rename a to b."),))
    assert parse_request(request(), "the-default") == ParsedRequest(expected, False, False, False)
    assert (expected.temperature, expected.draft, expected.source) == (0.0, True, None)


@pytest.mark.parametrize("name", [None, "", "default"])
def test_no_name_and_the_name_default_mean_the_default_model(name):
    assert parsed(model=name).model == "the-default"


def test_every_key_of_the_contract_reaches_the_request():
    value = {
        "model": "big",
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}],
            },
            {"role": "assistant", "content": "```"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 5,
        "max_completion_tokens": 7,
        "temperature": 1,
        "top_p": 0.5,
        "seed": 11,
        "stop": ["```", "END"],
        "prediction": {"type": "content", "content": "old"},
        "continue_final_message": True,
        "n": 1,
        "logprobs": False,
        "tools": [],
        "user": "ignored",
        "top_k": 40,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "logit_bias": {"50256": -100, "7": 1.5},
        "redraft": {
            "source": "src",
            "draft": False,
            "draft_model": "small",
            "banned_tokens": [3, 5, 3],
            "acceptance": "rejection",
            "exact": False,
            "workspace": {"folders": ["/b", "/a", "/b"], "suffixes": ["pyi", "py"]},
            "window": "w-1",
            "later": 1,
        },
    }
    assert parse_request(value, "d") == ParsedRequest(
        GenerationRequest(
            model="big",
            messages=(
                Message("system", "Be brief."),
                Message("user", "xy"),
                Message("assistant", "```"),
            ),
            continue_final_message=True,
            max_tokens=7,
            temperature=1.0,
            top_p=0.5,
            seed=11,
            stop=("```", "END"),
            source="src",
            draft=False,
            draft_model="small",
            top_k=40,
            min_p=0.05,
            repetition_penalty=1.1,
            logit_bias=((50256, -100.0), (7, 1.5)),
            banned_tokens=frozenset({3, 5}),
            acceptance="rejection",
            exact=False,
            workspace=Workspace(("/a", "/b"), ("py", "pyi")),
            window="w-1",
        ),
        stream=True,
        include_usage=True,
        extras=True,
    )


@pytest.mark.parametrize(
    ("keys", "source"),
    [
        ({"prediction": {"type": "content", "content": "p"}}, "p"),
        ({"prediction": {"type": "content", "content": [{"type": "text", "text": "q"}]}}, "q"),
        ({"prediction": {"type": "content", "content": "p"}, "redraft": {"source": "s"}}, "s"),
        ({"prediction": {"type": "content", "content": "p"}, "redraft": {"source": ""}}, ""),
        ({"redraft": {}}, None),
    ],
)
def test_the_source_is_the_one_named_else_the_prediction(keys, source):
    assert parsed(**keys).source == source


def of_workspace(folders: Any = ("/a",), suffixes: Any = ("py",)) -> dict[str, Any]:
    def listed(value: Any) -> Any:
        return list(value) if isinstance(value, tuple) else value

    return {"folders": listed(folders), "suffixes": listed(suffixes)}


@pytest.mark.parametrize(
    ("workspace", "words"),
    [
        (["/a"], "must be an object of `folders` and `suffixes`"),
        (of_workspace(folders="/a"), "folders` must be a list of up to 16 paths"),
        (of_workspace(folders=("/a",) * 17), "folders` must be a list of up to 16 paths"),
        (of_workspace(folders=("a",)), "folders` may hold only absolute paths"),
        (of_workspace(folders=("/a\0",)), "folders` may hold only absolute paths"),
        (of_workspace(folders=("/\ud800",)), "folders` may hold only absolute paths"),
        (of_workspace(folders=("/" + "a" * 4096,)), "folders` may hold only absolute paths"),
        (of_workspace(folders=(1,)), "folders` may hold only absolute paths"),
        (of_workspace(suffixes=None), "suffixes` must be a list of up to 16 endings"),
        (of_workspace(suffixes=("py",) * 17), "suffixes` must be a list of up to 16 endings"),
        (of_workspace(suffixes=(".py",)), "suffixes` may hold only endings such as `py`"),
        (of_workspace(suffixes=("",)), "suffixes` may hold only endings such as `py`"),
        (of_workspace(suffixes=("a/b",)), "suffixes` may hold only endings such as `py`"),
    ],
)
def test_a_workspace_that_is_none_is_refused_in_a_sentence(workspace, words):
    with pytest.raises(InvalidRequest) as caught:
        parsed(redraft={"workspace": workspace})
    assert words in caught.value.message
    assert caught.value.message.endswith(".")
    assert caught.value.param.startswith("redraft.workspace")


@pytest.mark.parametrize("workspace", [None, of_workspace(()), of_workspace(suffixes=())])
def test_a_workspace_without_folders_or_files_is_none(workspace):
    assert parsed(redraft={"workspace": workspace}).workspace is None


def test_a_redraft_key_asks_for_usage_too():
    assert parse_request(request(redraft={}), "d").include_usage
    assert not parse_request(request(redraft=None), "d").include_usage


def test_warm_and_all_of_top_k_have_two_names():
    assert parsed(max_tokens=9, redraft={"warm": True}).max_tokens == 0
    assert parsed(top_k=-1).top_k == 0


def test_zero_tokens_only_warm():
    assert parsed(max_tokens=0).max_tokens == 0


def test_seeds_fold_into_63_bits():
    assert parsed(seed=-1).seed == 2**63 - 1
    assert parsed(seed=2**63 - 1).seed == 2**63 - 1


NULLS = [
    "stream", "stream_options", "max_tokens", "temperature", "top_p", "seed", "stop",
    "prediction", "continue_final_message", "n", "tools", "logprobs", "redraft",
]  # fmt: skip


@pytest.mark.parametrize("key", NULLS)
def test_null_counts_as_absent(key):
    assert parse_request(request(**{key: None}), "d") == parse_request(request(), "d")


HALF = "\ud800"
BAD: list[tuple[dict[str, Any], str]] = [
    ({"model": 3}, "model"),
    ({"model": "a\nb"}, "model"),
    ({"model": "m" * 5000}, "model"),
    ({"model": "a\0b"}, "model"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [None]}, "messages"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages"),
    ({"messages": [{"role": ["user"], "content": "x"}]}, "messages"),
    ({"messages": [{"role": "user", "content": None}]}, "messages"),
    ({"messages": [{"role": "user", "content": HALF}]}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}, "messages"),
    ({"messages": USER * 257}, "messages"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": True}, "stream_options"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"max_tokens": 5.0}, "max_tokens"),
    ({"max_tokens": 10**9}, "max_tokens"),
    ({"max_completion_tokens": "5"}, "max_completion_tokens"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.5}, "temperature"),
    ({"temperature": float("nan")}, "temperature"),
    ({"temperature": float("inf")}, "temperature"),
    ({"temperature": 10**400}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"top_k": 1.5}, "top_k"),
    ({"min_p": 1.5}, "min_p"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"repetition_penalty": "x"}, "repetition_penalty"),
    ({"logit_bias": []}, "logit_bias"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"1": 101}}, "logit_bias"),
    ({"logit_bias": {"1": float("nan")}}, "logit_bias"),
    ({"logit_bias": {"1": True}}, "logit_bias"),
    ({"logit_bias": {str(i): 1 for i in range(1025)}}, "logit_bias"),
    ({"seed": 1.5}, "seed"),
    ({"seed": 2**63}, "seed"),
    ({"stop": 1}, "stop"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop"),
    ({"stop": ["a"] * 9}, "stop"),
    ({"stop": HALF}, "stop"),
    ({"prediction": "old"}, "prediction"),
    ({"prediction": {"type": "other", "content": "x"}}, "prediction"),
    ({"prediction": {"type": "content"}}, "prediction"),
    ({"prediction": {"type": "content", "content": [1]}}, "prediction"),
    ({"continue_final_message": 1}, "continue_final_message"),
    ({"continue_final_message": True}, "continue_final_message"),
    ({"n": 2}, "n"),
    ({"n": True}, "n"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"logprobs": True}, "logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"redraft": []}, "redraft"),
    ({"redraft": {"source": 1}}, "redraft.source"),
    ({"redraft": {"source": HALF}}, "redraft.source"),
    ({"redraft": {"draft": "no"}}, "redraft.draft"),
    ({"redraft": {"draft_model": 1}}, "redraft.draft_model"),
    ({"redraft": {"window": 1}}, "redraft.window"),
    ({"redraft": {"window": ""}}, "redraft.window"),
    ({"redraft": {"window": "w" * 65}}, "redraft.window"),
    ({"redraft": {"window": "a\n"}}, "redraft.window"),
    ({"redraft": {"banned_tokens": "3"}}, "redraft.banned_tokens"),
    ({"redraft": {"banned_tokens": [True]}}, "redraft.banned_tokens"),
    ({"redraft": {"banned_tokens": [-1]}}, "redraft.banned_tokens"),
    ({"redraft": {"banned_tokens": [1] * 1025}}, "redraft.banned_tokens"),
    ({"redraft": {"acceptance": "greedy"}}, "redraft.acceptance"),
    ({"redraft": {"acceptance": []}}, "redraft.acceptance"),
    ({"redraft": {"exact": 1}}, "redraft.exact"),
    ({"redraft": {"warm": "yes"}}, "redraft.warm"),
]


@pytest.mark.parametrize(("keys", "param"), BAD, ids=lambda v: str(v)[:40].replace(HALF, "half"))
def test_a_bad_value_is_refused_with_a_sentence_that_names_its_key(keys, param):
    with pytest.raises(InvalidRequest) as caught:
        parsed(**keys)
    assert caught.value.code == "invalid_request"
    assert caught.value.param == param
    assert caught.value.message.startswith(("`", "The "))
    assert f"`{param.split('.')[0]}" in caught.value.message
    assert caught.value.message.endswith(".")


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 5000, b"[]", b"null"])
def test_a_body_that_is_no_json_object_is_refused(body):
    with pytest.raises(InvalidRequest) as caught:
        parse_body(body, "d")
    assert caught.value.param is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
keys = st.sampled_from(
    [
        "model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens",
        "temperature", "top_p", "seed", "stop", "prediction", "continue_final_message", "n",
        "tools", "logprobs", "top_logprobs", "redraft", "top_k", "min_p", "repetition_penalty",
        "logit_bias",
    ]
)  # fmt: skip
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "x"]), "content": json_values}
    ),
    max_size=2,
)
redraft = st.dictionaries(st.sampled_from(["source", "draft", "draft_model"]), json_values)


def checked(read, value) -> ParsedRequest | None:
    """What `read` makes of a value; any error but ours goes through and fails the test."""
    result, error = None, None
    try:
        result = read(value, "d")
    except EngineError as caught:
        error = caught
    if error is not None:
        assert error.code == "invalid_request"
        assert error.message.endswith(".")
    return result


@given(
    st.one_of(
        json_values,
        st.dictionaries(keys, json_values),
        st.dictionaries(keys, json_values).map(lambda value: {**value, "messages": USER}),
        st.builds(lambda m, r: request(messages=m, redraft=r), messages, redraft),
    )
)
def test_any_json_value_is_a_request_or_an_error_with_a_sentence(value):
    result = checked(parse_request, value)
    if result is not None:
        assert 0.0 <= result.request.temperature <= 2.0
        assert 0.0 < result.request.top_p <= 1.0
        assert "".join(m.content for m in result.request.messages).encode() is not None


@given(st.binary(max_size=200) | json_values.map(lambda v: json.dumps(v).encode()))
def test_any_bytes_are_a_request_or_an_error(body):
    checked(parse_body, body)
