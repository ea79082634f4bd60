"""A rewrite from question to decision, over stdio, with a scripted engine."""

from __future__ import annotations

import asyncio

import pytest

from tests.editor.editor import Editor
from tests.editor.scripted_engine import STATS, Hang, Report, ScriptedEngine, Text

FUNCTION = "def area(w, h):\n    size = w * h\n    print('a')\n    print('b')\n    return size\n"
SOURCE = f"import os\n\n\n{FUNCTION}\n\nx = area(1, 2)\n"
ANSWER = FUNCTION.replace("size", "surface")
# The first part holds unchanged lines after a changed one, so that a hunk settles.
FIRST, REST = ANSWER[: ANSWER.index("    return")], ANSWER[ANSWER.index("    return") :]
AFTER = SOURCE.replace("size", "surface")
SHAPES = {
    "crlf": SOURCE.replace("\n", "\r\n"),
    "cr": SOURCE.replace("\n", "\r"),
    "tabs": SOURCE.replace("    ", "\t"),
    "emoji_before": 'name = "🙂 e\u0301 日本"\n' + SOURCE.replace("size = w", "size = 1 * w"),
    "emoji_inside": SOURCE.replace("return size", 'return size, "🙂\u200d🙂"'),
    "no_final_newline": SOURCE.removesuffix("\n\n\nx = area(1, 2)\n"),
    "form_feed": SOURCE.replace("import os\n", "import os\n\x0c\nz = '\u2028'\n"),
    "byte_order_mark": "\ufeff" + SOURCE,
    "mixed_line_ends": SOURCE.replace("import os\n\n", "import os\r\n\r\n"),
}


async def test_a_rewrite_streams_hunks_and_changes_nothing_before_accept(
    editor: Editor, engine: ScriptedEngine
) -> None:
    engine.script(Text(FIRST), Hang(), Text(REST))
    editor.open("a.py", SOURCE)
    _, answer = editor.begin_rewrite("rename size to surface", editor.find("size"))

    early = await editor.wait_for(lambda: [u for u in editor.updates if u["hunks"]])
    assert [h["newText"] for h in early[0]["hunks"]] == ["    surface = w * h"]
    assert [u["done"] for u in editor.updates] == [False] * len(editor.updates)
    engine.release()
    result = await answer

    assert result["status"] == "ok"
    assert result["text"] == ANSWER.removesuffix("\n")
    assert result["stats"] == STATS
    assert result["applied"] is False
    assert editor.updates[-1]["done"] is True
    assert editor.updates[-1]["hunks"] == result["hunks"]
    assert editor.text == SOURCE
    assert editor.edits == []

    assert await editor.accept(result["jobId"]) == {
        "applied": True,
        "message": "",
        "remaining": [],
    }
    assert editor.text == AFTER


async def test_the_engine_gets_the_function_as_source_and_the_instruction(
    editor: Editor, engine: ScriptedEngine
) -> None:
    editor.open("a.py", SOURCE)
    await editor.rewrite("rename size", editor.find("size"), draft=False, seed=7, temperature=0.5)

    body = engine.requests[0]
    source = FUNCTION.removesuffix("\n")
    assert body["redraft"]["source"] == source
    assert body["redraft"]["draft"] is False
    assert body["prediction"] == {"type": "content", "content": source}
    assert (body["seed"], body["temperature"], body["stream"]) == (7, 0.5, True)
    assert "rename size" in body["messages"][-2]["content"]


@pytest.mark.parametrize("shape", SHAPES)
async def test_accept_is_one_undo_step_and_undo_restores_the_exact_text(
    any_encoding: Editor, engine: ScriptedEngine, shape: str
) -> None:
    editor, before = any_encoding, SHAPES[shape]
    source = before.replace("\r\n", "\n").replace("\r", "\n")
    function = source[source.index("def area") :].split("\n\n\n")[0]
    answer = function.replace("size", "surface")
    # In small pieces, so that hunks settle inside characters and lines.
    engine.script(*(Text(answer[i : i + 5]) for i in range(0, len(answer), 5)))
    editor.open("a.py", before)

    result = await editor.rewrite("rename size to surface", editor.find("area"))
    assert result["status"] == "ok", result["message"]
    assert (await editor.accept(result["jobId"]))["applied"] is True

    assert editor.text == before.replace("size", "surface")
    assert len(editor.edits) == 1
    editor.undo()
    assert editor.text == before
    assert editor.buffer.undo_stack == []


async def test_reject_leaves_the_text_and_clears_the_preview(
    editor: Editor, engine: ScriptedEngine
) -> None:
    engine.script(Text(ANSWER))
    editor.open("a.py", SOURCE)
    result = await editor.rewrite("rename", editor.find("size"))

    assert await editor.reject(result["jobId"]) == {"remaining": []}
    assert editor.updates[-1]["hunks"] == []
    assert editor.updates[-1]["done"] is True
    assert editor.text == SOURCE
    with pytest.raises(Exception, match="ended already: rejected"):
        await editor.accept(result["jobId"])


async def test_hunks_can_be_accepted_and_rejected_one_by_one(
    editor: Editor, engine: ScriptedEngine
) -> None:
    lines = [f"    v{i} = {i}" for i in range(9)]
    changed = [*lines]
    changed[0], changed[4], changed[8] = "    a = 0\n    b = 0", "    c = 4", "    d = 8"
    before = "\n".join(["def f():", *lines, ""])
    engine.script(Text("\n".join(["def f():", *changed, ""])))
    editor.open("a.py", before)
    result = await editor.rewrite("change three lines", (0, 0))
    first, second, third = (h["id"] for h in result["hunks"])

    assert await editor.accept(result["jobId"], [first]) == {
        "applied": True,
        "message": "",
        "remaining": [second, third],
    }
    assert [h["range"]["start"]["line"] for h in editor.updates[-1]["hunks"]] == [6, 10]
    assert await editor.reject(result["jobId"], [second]) == {"remaining": [third]}
    editor.type("# above\n", (0, 0))
    assert (await editor.accept(result["jobId"]))["remaining"] == []

    expected = before.replace("    v0 = 0", changed[0]).replace("    v8 = 8", changed[8])
    assert editor.text == "# above\n" + expected
    assert len(editor.edits) == 2


async def test_what_is_left_of_a_rewrite_never_moves_to_an_equal_function_above(
    editor: Editor, engine: ScriptedEngine
) -> None:
    plain = "def f():\n    a = 0\n    b = 1\n    c = 2\n    return a\n"
    decorated = f"@cached\n{plain}"
    before = f"{decorated}\n\n{plain}"
    engine.script(Text(decorated.replace("return a", "return c")))
    editor.open("a.py", before)
    result = await editor.rewrite("cache it and return c", (len(decorated.split("\n")) + 2, 0))
    first, second = (h["id"] for h in result["hunks"])

    # The second function now reads like the first one.
    assert (await editor.accept(result["jobId"], [first]))["remaining"] == [second]
    assert editor.text == f"{decorated}\n\n{decorated}"
    assert (await editor.accept(result["jobId"]))["applied"] is True
    assert editor.text == f"{decorated}\n\n{decorated.replace('return a', 'return c')}"


async def test_progress_says_what_the_engine_does(editor: Editor, engine: ScriptedEngine) -> None:
    engine.script(
        Report("fetching", 0.4, "412 of 1117 MB"),
        Report("loading"),
        Report("prefill", 0.45),
        Hang(),
        Text(ANSWER),
    )
    # A token of the client: then nothing is reported before the client knows it.
    reports = editor.lsp.progress_reports.setdefault("mine", [])
    editor.open("a.py", SOURCE)
    _, answer = editor.begin_rewrite("rename size", editor.find("size"), workDoneToken="mine")
    await editor.wait_for(
        lambda: [u for u in editor.updates if u["progress"]["phase"] == "prefill"]
    )
    engine.release()
    await editor.reject((await answer)["jobId"])

    begin, fetching, loading, reading, writing, *_, end = reports
    assert (begin.title, begin.cancellable) == ("redraft: rename size", True)
    assert fetching.message == "fetching 412 of 1117 MB"
    assert loading.message == "loading the model"
    assert reading.message == "reading 45%"
    assert writing.message.startswith("writing")
    assert (end.kind, end.message) == ("end", "done")
    assert list(editor.lsp.progress_reports) == ["mine"]
    assert editor.updates[0]["progress"]["phase"] == "starting"


async def test_a_client_that_draws_hunks_hears_of_every_phase(
    editor: Editor, engine: ScriptedEngine
) -> None:
    # All at once, so that each but the first comes within the interval of the one before.
    engine.script(Report("loading", 0.5), Report("loading", 0.6), Report("prefill"), Text(ANSWER))
    editor.open("a.py", SOURCE)
    result = await editor.rewrite("rename size", editor.find("size"))
    await editor.reject(result["jobId"])
    phases = [u["progress"]["phase"] for u in editor.updates if "progress" in u]
    assert list(dict.fromkeys(phases)) == ["starting", "loading", "prefill", "writing"]


async def test_without_a_token_the_client_is_asked_for_one(
    editor: Editor, engine: ScriptedEngine
) -> None:
    engine.script(Hang(), Text(ANSWER))
    editor.open("a.py", SOURCE)
    _, answer = editor.begin_rewrite("rename", editor.find("size"))
    (begin,) = await editor.wait_for(editor.progress)
    assert (begin.kind, begin.cancellable) == ("begin", True)
    engine.release()
    await editor.reject((await answer)["jobId"])
    assert editor.progress()[-1].kind == "end"


async def test_an_explicit_range_wins_over_the_function_around_it(
    editor: Editor, engine: ScriptedEngine
) -> None:
    engine.script(Text("    size = h * w\n"))
    editor.open("a.py", SOURCE)
    line, _ = editor.find("size")
    result = await editor.rewrite("swap", (line, 6), (line, 9))
    assert engine.requests[0]["redraft"]["source"] == "    size = w * h"
    await editor.accept(result["jobId"])
    assert editor.text == SOURCE.replace("w * h", "h * w")


async def test_an_unknown_language_works_on_the_selected_lines(
    editor: Editor, engine: ScriptedEngine
) -> None:
    engine.script(Text("PORT 81\n"))
    editor.open("Caddyfile", "HOST a\nPORT 80\nEND\n", "caddyfile")
    result = await editor.rewrite("use port 81", (1, 0), (1, 7))
    await editor.accept(result["jobId"])
    assert editor.text == "HOST a\nPORT 81\nEND\n"


async def test_a_client_without_hunks_gets_none(plain: Editor, engine: ScriptedEngine) -> None:
    engine.script(Text(ANSWER))
    plain.open("a.py", SOURCE)
    result = await plain.rewrite("rename", plain.find("size"), apply=True)
    assert (result["status"], result["applied"]) == ("ok", True)
    assert plain.text == AFTER
    assert plain.updates == []
    assert plain.progress() == []


async def test_a_second_rewrite_of_the_same_lines_is_refused_and_another_function_is_not(
    editor: Editor, engine: ScriptedEngine
) -> None:
    other = "def other():\n    return 1\n"
    engine.script(Hang(), Text(ANSWER))
    editor.open("a.py", SOURCE + other)
    _, first = editor.begin_rewrite("rename", editor.find("size"))
    await engine.wait_for_requests(1)
    with pytest.raises(Exception, match="at work; wait for it, or cancel it"):
        await editor.rewrite("again", editor.find("size"))
    engine.script(Text(other.replace("1", "2")))
    second = await editor.rewrite("return 2", editor.find("other"))
    engine.release()
    result = await first
    with pytest.raises(Exception, match="waits for your decision"):
        await editor.rewrite("again", editor.find("size"))
    await editor.accept(result["jobId"])
    await editor.accept(second["jobId"])
    assert editor.text == AFTER + other.replace("1", "2")


async def test_warming_sends_the_prompt_with_no_tokens_to_write(
    editor: Editor, engine: ScriptedEngine
) -> None:
    editor.open("a.py", SOURCE)
    assert await editor.request("redraft/warm", editor.where(editor.find("size"))) == {
        "warmed": True
    }
    engine.script(Text(ANSWER))
    await editor.reject((await editor.rewrite("rename", editor.find("size")))["jobId"])
    warm, real = (r["messages"][-2]["content"] for r in engine.requests)
    assert engine.requests[0]["max_tokens"] == 0
    source_end = warm.index("return size") + len("return size")
    assert warm[:source_end] == real[:source_end]


async def test_a_newer_warming_ends_the_older_one(editor: Editor, engine: ScriptedEngine) -> None:
    editor.open("a.py", SOURCE)
    engine.script(Hang())
    _, first = editor.ask("redraft/warm", editor.where(editor.find("size")))
    await engine.wait_for_requests(1)
    second = await editor.request("redraft/warm", editor.where(editor.find("size")))
    assert (await first, second) == ({"warmed": False}, {"warmed": True})
    await engine.wait_for_disconnects(1)


async def test_hunks_come_at_most_twenty_times_a_second_and_the_last_one_always(
    editor: Editor, engine: ScriptedEngine
) -> None:
    lines = [f"    value_{n} = {n}" for n in range(400)]
    answer = [line.replace("= ", "= 1 + ") if n % 3 == 0 else line for n, line in enumerate(lines)]
    engine.script(Text("def f():\n"), *(Text(f"{line}\n") for line in answer))
    editor.open("a.py", "\n".join(["def f():", *lines, ""]))
    loop = asyncio.get_running_loop()
    began = loop.time()
    result = await editor.rewrite("add one to every third", (0, 0))
    seconds = loop.time() - began
    # Two more: the first comes at once, and the last does not wait.
    assert len(editor.updates) <= seconds * 20 + 2
    assert [u["done"] for u in editor.updates].count(True) == 1
    assert editor.updates[-1]["hunks"] == result["hunks"]
    assert len(result["hunks"]) == 134
    await editor.accept(result["jobId"])
    assert editor.text == "\n".join(["def f():", *answer, ""])


async def test_what_is_special_about_the_engine_is_said_once(
    editor: Editor, engine: ScriptedEngine
) -> None:
    engine.stats["notice"] = "mamba models run a token at a time."
    editor.open("a.py", SOURCE)
    for _ in range(2):
        engine.script(Text(ANSWER))
        result = await editor.rewrite("rename size to surface", editor.find("size"))
        await editor.reject(result["jobId"])
    assert editor.told() == ["mamba models run a token at a time."]


async def test_status_lists_the_engine_and_the_jobs(editor: Editor, engine: ScriptedEngine) -> None:
    engine.script(Report("prefill", 0.1), Hang(), Text(ANSWER))
    editor.open("a.py", SOURCE)
    _, answer = editor.begin_rewrite("rename", editor.find("size"), jobId="mine")
    await editor.wait_for(lambda: any(u["progress"]["phase"] == "prefill" for u in editor.updates))
    status = await editor.request("redraft/status", {})
    assert status["engine"]["state"] == "busy"
    assert [(j["jobId"], j["state"]) for j in status["jobs"]] == [("mine", "warming")]
    engine.release()
    await answer
    (job,) = await editor.jobs()
    assert (job["state"], job["tokens"], job["tokensPerSecond"]) == ("review", 12, 23.4)
    await editor.reject("mine")
