"""The language server beside a real engine process with a tiny random model.

The server starts the engine itself. A random model writes nonsense until its limit, so no
answer is applied here; what is tested is everything around it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from filelock import FileLock
from pygls.exceptions import JsonRpcException

from lsp_server.engine_http import Endpoint, ask_health, ask_to_stop
from tests.editor.clients import VS_CODE
from tests.editor.editor import Editor
from tests.tiny import save_tiny_model

SOURCE = "import os\n\n\ndef area(width, height):\n    return width * height\n\n\nprint(os.sep)\n"
# Imports torch and loads a model, on two busy cores.
SECONDS = 60.0


class Machine:
    """A user's folders, and the engine in them."""

    def __init__(self, folder: Path) -> None:
        self.runtime = folder / "run"
        self.model = folder / "model"
        self.environment = {
            "REDRAFT_RUNTIME_DIR": str(self.runtime),
            "REDRAFT_CACHE_DIR": str(folder / "cache"),
        }

    def record(self) -> dict[str, Any] | None:
        try:
            return json.loads((self.runtime / "engine.json").read_text())
        except FileNotFoundError:
            return None

    async def health(self) -> Any:
        record = self.record()
        return None if record is None else await ask_health(Endpoint(record["url"]), SECONDS)

    async def wait_for_health(self, **expected: Any) -> None:
        async def wait() -> None:
            # Nothing announces what another process does, so we look.
            while not expected.items() <= dict(await self.health() or {}).items():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        await asyncio.wait_for(wait(), SECONDS)

    async def stop(self) -> None:
        """Stop the engine; it lets go of its lock at the very end."""
        record = self.record()
        if record is not None:
            await ask_to_stop(Endpoint(record["url"]))
            lock = FileLock(self.runtime / "engine.lock")
            with await asyncio.to_thread(lock.acquire, SECONDS):
                pass


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def machine() -> AsyncIterator[Machine]:
    # Not tmp_path: a socket's path has at most about 100 characters.
    with tempfile.TemporaryDirectory(prefix="rd-") as folder:
        machine = Machine(Path(folder))
        # One that falls into a loop, which look-up drafts follow, and never ends.
        save_tiny_model(machine.model, seed=48, spread=0.1)
        yield machine
        await machine.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def window(machine: Machine) -> AsyncIterator[Editor]:
    options = {"model": str(machine.model)}
    async with Editor.started(VS_CODE, options=options, environment=machine.environment) as editor:
        yield editor


@pytest_asyncio.fixture(loop_scope="session")
async def editor(window: Editor) -> AsyncIterator[Editor]:
    window.open("a.py", SOURCE)
    yield window
    assert window.text == SOURCE
    await window.reset()


async def _rewrite(editor: Editor, **more: Any) -> dict[str, Any]:
    _, answer = editor.begin_rewrite("rename", editor.find("width"), **more)
    return await asyncio.wait_for(answer, SECONDS)


async def _begin(editor: Editor, **more: Any) -> tuple[str, asyncio.Task[Any]]:
    """Begin a rewrite, and wait until the model writes."""
    editor.updates.clear()
    begun = editor.begin_rewrite("rename", editor.find("width"), **more)

    def writes() -> bool:
        return any(u.get("progress", {}).get("phase") == "writing" for u in editor.updates)

    await editor.wait_for(writes, SECONDS)
    return begun


async def test_the_first_rewrite_starts_the_engine_and_says_what_it_does(
    editor: Editor, machine: Machine
) -> None:
    await machine.stop()
    result = await _rewrite(editor, jobId="mine")
    assert result["status"] == "cut_off"
    health = await machine.health()
    assert (health["pid"], health["model"]) == (machine.record()["pid"], str(machine.model))
    said = [value.message.split(",")[0] for value in editor.progress()]
    words = ["starting the engine", "loading the model", "converting", "reading", "writing"]
    phases = [next(w for w in words if text.startswith(w)) for text in said[:-1]]
    order = [phase for phase, _ in groupby(phases)]
    assert [p for p in order if p != "converting"][:2] == words[:2]
    assert order[-2:] == ["reading", "writing"]


async def test_updates_stream_while_the_model_writes_and_end_with_done(editor: Editor) -> None:
    result = await _rewrite(editor, jobId="mine", draft=False)
    *updates, last = editor.updates
    assert {update["jobId"] for update in editor.updates} == {"mine"}
    phases = [update["progress"]["phase"] for update in updates if "progress" in update]
    order = ["starting", "queued", "converting", "loading", "prefill", "writing"]
    assert phases == sorted(phases, key=order.index)
    written = [u["progress"] for u in updates if u["progress"]["phase"] == "writing"]
    assert len(written) > 5
    fractions = [progress["fraction"] for progress in written]
    assert fractions == sorted(fractions)
    assert all(progress["detail"].endswith(" tokens/s") for progress in written)
    # A random model's lines are none of the file's, so no hunk has settled.
    assert [update["done"] for update in editor.updates] == [False] * len(updates) + [True]
    assert last["hunks"] == result["hunks"] == []


async def test_the_text_is_the_same_with_and_without_drafts_and_the_statistics_add_up(
    editor: Editor,
) -> None:
    drafted = await _rewrite(editor)
    plain = await _rewrite(editor, draft=False)
    assert drafted["text"] == plain["text"] != ""
    assert drafted["status"] == plain["status"] == "cut_off"
    stats = plain["stats"]
    assert stats["drafted"] == stats["accepted"] == 0
    assert stats["passes"] == stats["tokens"] > 100
    stats = drafted["stats"]
    assert stats["tokens"] == plain["stats"]["tokens"]
    assert 0 < stats["accepted"] <= stats["drafted"]
    assert sum(stats["accepted_by_origin"].values()) == stats["accepted"]
    assert sum(stats["drafted_by_origin"].values()) == stats["drafted"]
    # Each pass adds a token of the target's own; the limit may cut the last pass short.
    assert stats["tokens"] - stats["accepted"] in (stats["passes"], stats["passes"] - 1)
    assert stats["tokens_per_pass"] == pytest.approx(stats["tokens"] / stats["passes"])
    assert stats["tokens_per_second"] == pytest.approx(stats["tokens"] / stats["decode_seconds"])
    assert 0 <= stats["cached_prompt_tokens"] <= stats["prompt_tokens"]


@pytest.mark.parametrize("way", ["request", "job"])
async def test_a_cancelled_rewrite_leaves_the_engine_idle(
    editor: Editor, machine: Machine, way: str
) -> None:
    message, answer = await _begin(editor, jobId="mine", draft=False)
    assert (await machine.health())["active"] == 1
    if way == "request":
        editor.cancel_request(message)
        with pytest.raises(JsonRpcException) as caught:
            await answer
        assert caught.value.code == -32800
    else:
        assert await editor.request("redraft/cancel", {"jobId": "mine"}) == {"cancelled": True}
        assert (await answer)["status"] == "cancelled"
    await machine.wait_for_health(active=0, queued=0, status="idle")
    assert editor.updates[-1]["done"]
    assert editor.updates[-1]["hunks"] == []


async def test_a_killed_engine_costs_one_rewrite_and_the_next_one_starts_another(
    editor: Editor, machine: Machine
) -> None:
    before = await _rewrite(editor)
    _, answer = await _begin(editor, draft=False)
    killed = machine.record()
    assert killed is not None
    os.kill(killed["pid"], signal.SIGKILL)
    with pytest.raises(JsonRpcException) as caught:
        await answer
    assert caught.value.code == -32803
    assert caught.value.message == (
        "The engine stopped in the middle of the rewrite; nothing was changed. "
        "Run it again: a new engine will start."
    )
    assert editor.text == SOURCE
    after = await _rewrite(editor)
    assert (after["status"], after["text"]) == (before["status"], before["text"])
    started = machine.record()
    assert started is not None
    assert started["pid"] != killed["pid"]
