"""Storms: a person does anything in any order, and the text is what the choices imply.

A server and a scripted engine run beside a model that shares no code with either: lines,
of which each knows the function that it belongs to. The buffer of the fake editor must
say what the model says after every step, and the server must hold the jobs that it holds.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pygls.exceptions import JsonRpcException

from lsp_server.jobs import STALE_MESSAGE
from tests.editor.clients import NEOVIM, VS_CODE, Client
from tests.editor.editor import Editor
from tests.editor.scripted_engine import Fail, Hang, ScriptedEngine, Text

T = TypeVar("T")
NAMES = ("alpha", "beta", "gamma")
CHANGEABLE = (1, 3, 5)
CLIENTS = [NEOVIM, VS_CODE, VS_CODE.with_encoding("utf-32")]
names = st.sampled_from(NAMES)
line_sets = st.sets(st.sampled_from(CHANGEABLE), min_size=1)


class Line(NamedTuple):
    """A line of the model and the function that it belongs to, or the empty string."""

    text: str
    owner: str = ""


class Work:
    """A job of the model: the lines that it would change, by their place in the function."""

    def __init__(self, job_id: str, task: asyncio.Task[Any], wanted: dict[int, str]) -> None:
        self.id = job_id
        self.task = task
        self.wanted = wanted
        self.hunks: dict[str, int] = {}

    @property
    def in_review(self) -> bool:
        return bool(self.hunks)


def _function(name: str) -> list[Line]:
    texts = [
        f"def {name}(size):",
        f"    {name}_one = size + 1",
        f"    {name}_kept = '🎉 é'  # 𝒳 stays",
        f"    {name}_two = size + 2",
        f"    {name}_also_kept = [size]",
        f"    {name}_three = size + 3",
        f"    return {name}_one",
    ]
    return [Line(text, name) for text in texts]


class Storm(RuleBasedStateMachine):
    """One document. The class attributes are set by the test."""

    loop: asyncio.AbstractEventLoop
    editor: Editor
    engine: ScriptedEngine

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 20))

    # --- the model

    @property
    def text(self) -> str:
        return self.line_end.join(line.text for line in self.lines)

    def first_line(self, name: str) -> int:
        return next(n for n, line in enumerate(self.lines) if line.owner == name)

    def of(self, name: str) -> list[str]:
        return [line.text for line in self.lines if line.owner == name]

    def remember(self) -> None:
        self.undo_steps.append(list(self.lines))

    @initialize(line_end=st.sampled_from(["\n", "\r\n", "\r"]))
    def open(self, line_end: str) -> None:
        self.line_end, self.count, self.asked = line_end, 0, 0
        self.lines = [Line("top = '𝒳'")]
        for name in NAMES:
            # Code, as a comment above a function would belong to it.
            self.lines += [*_function(name), Line(""), Line("between = 'é'")]
        self.undo_steps: list[list[Line]] = []
        self.work: dict[str, Work] = {}
        self.editor.expect(STALE_MESSAGE)
        self.run(self._open())

    async def _open(self) -> None:
        self.editor.open("a.py", self.text)

    async def _check(self) -> None:
        assert self.editor.text == self.text
        assert len(self.editor.buffer.undo_stack) == len(self.undo_steps)
        expected = {work.id: work.in_review for work in self.work.values()}
        held: dict[str, bool] = {}
        for _ in range(100):
            held = {j["jobId"]: j["state"] == "review" for j in await self.editor.jobs()}
            if held == expected:
                return
        assert held == expected

    async def _stopped(self, name: str, status: str) -> None:
        work = self.work.pop(name)
        if work.in_review:
            return
        assert (await work.task)["status"] == status

    # --- rewrites

    @rule(name=names, changed=line_sets)
    def begin(self, name: str, changed: set[int]) -> None:
        self.run(self._begin(name, changed))
        self.run(self._check())

    async def _begin(self, name: str, changed: set[int]) -> None:
        place = (self.first_line(name), 5)
        self.count += 1
        job_id = f"storm-{self.count}"
        if name in self.work:
            with pytest.raises(JsonRpcException, match="A rewrite of these lines"):
                await self.editor.rewrite("count", place, jobId=job_id)
            return
        lines = self.of(name)
        wanted = {n: f"{lines[n]} + {self.count}" for n in changed}
        answer = [wanted.get(n, line) for n, line in enumerate(lines)]
        head = "\n".join(answer[:4]) + "\n"
        self.engine.script(Text(head), Hang(), Text("\n".join(answer[4:]) + "\n```\n"))
        _, task = self.editor.begin_rewrite("count", place, jobId=job_id)
        self.work[name] = Work(job_id, task, wanted)
        self.asked += 1
        await self.engine.wait_for_requests(self.asked)

    @rule(name=names)
    def fail(self, name: str) -> None:
        if name not in self.work:
            self.run(self._fail(name))
            self.run(self._check())

    async def _fail(self, name: str) -> None:
        self.engine.script(Fail("overloaded", "The engine is full."))
        self.asked += 1
        with pytest.raises(JsonRpcException, match="The engine is full"):
            await self.editor.rewrite("count", (self.first_line(name), 5))

    @precondition(lambda self: any(not work.in_review for work in self.work.values()))
    @rule()
    def finish(self) -> None:
        try:
            self.run(self._finish())
        finally:
            self.engine.hold()
        self.run(self._check())

    async def _finish(self) -> None:
        self.engine.release()
        for name, work in self.work.items():
            if work.in_review:
                continue
            result = await work.task
            assert result["status"] == "ok"
            by_text = {text: line for line, text in work.wanted.items()}
            assert {hunk["newText"] for hunk in result["hunks"]} == set(by_text), (
                result,
                self.text,
            )
            work.hunks = {hunk["id"]: by_text[hunk["newText"]] for hunk in result["hunks"]}
            assert sorted(work.hunks.values()) == sorted(work.wanted)
            first = self.first_line(name)
            places = {h["id"]: h["range"]["start"]["line"] - first for h in result["hunks"]}
            assert places == work.hunks

    # --- decisions

    def _some(self, work: Work, lines: set[int]) -> list[str]:
        """The job's hunks on these lines, or all of them where there are none."""
        return [h for h, n in work.hunks.items() if n in lines] or list(work.hunks)

    def _accepted(self, name: str, hunks: list[str]) -> None:
        work = self.work[name]
        self.remember()
        for hunk in hunks:
            line = work.hunks.pop(hunk)
            self.lines[self.first_line(name) + line] = Line(work.wanted[line], name)
        if not work.hunks:
            del self.work[name]

    @rule(name=names, lines=line_sets)
    def accept(self, name: str, lines: set[int]) -> None:
        work = self.work.get(name)
        if work is None:
            return
        if not work.in_review:
            with pytest.raises(JsonRpcException, match="still being written"):
                self.run(self.editor.accept(work.id))
            return
        hunks = self._some(work, lines)
        outcome = self.run(self.editor.accept(work.id, hunks))
        assert outcome["applied"] is True
        assert outcome["remaining"] == [hunk for hunk in work.hunks if hunk not in hunks]
        self._accepted(name, hunks)
        self.run(self._check())

    @rule(name=names, lines=line_sets)
    def reject(self, name: str, lines: set[int]) -> None:
        work = self.work.get(name)
        if work is None or not work.in_review:
            return
        hunks = self._some(work, lines)
        self.run(self.editor.reject(work.id, hunks))
        for hunk in hunks:
            del work.hunks[hunk]
        if not work.hunks:
            del self.work[name]
        self.run(self._check())

    @rule(name=names)
    def cancel(self, name: str) -> None:
        if name in self.work:
            self.run(self._cancel(name))
            self.run(self._check())

    async def _cancel(self, name: str) -> None:
        job_id = self.work[name].id
        answer = await self.editor.request("redraft/cancel", {"jobId": job_id})
        assert answer == {"cancelled": True}
        await self._stopped(name, "cancelled")

    @precondition(lambda self: self.editor.client.version_check == "equality")
    @rule(name=names, inside=st.booleans())
    def accept_overtaken_by_typing(self, name: str, inside: bool) -> None:
        work = self.work.get(name)
        if work is None or not work.in_review:
            return
        self.editor.before_edit = (
            (lambda: self._type_inside(name, 2)) if inside else (lambda: self._type_above(0))
        )
        outcome = self.run(self.editor.accept(work.id))
        assert outcome["applied"] is not inside
        if inside:
            del self.work[name]
        else:
            self._accepted(name, list(work.hunks))
        self.run(self._check())

    # --- typing

    def _type_above(self, line: int) -> None:
        self.remember()
        self.lines.insert(line, Line(f"typed = '🎉 {len(self.undo_steps)}'"))
        self.editor.type(self.lines[line].text + self.line_end, (line, 0))

    def _type_inside(self, name: str, line: int) -> None:
        self.remember()
        at = self.first_line(name) + line
        old = self.lines[at].text
        self.lines[at] = Line(old[:5] + "q" + old[5:], name)
        self.editor.type("q", (at, 5))

    @rule(data=st.data())
    def type_outside(self, data: st.DataObject) -> None:
        places = [n for n, line in enumerate(self.lines) if line.owner == "" or "def" in line.text]
        line = data.draw(st.sampled_from(places))
        self.run(_now(lambda: self._type_above(line)))
        self.run(self._check())

    @rule(name=names, line=st.integers(1, 5))
    def type_inside(self, name: str, line: int) -> None:
        self.run(_now(lambda: self._type_inside(name, line)))
        if name in self.work:
            self.run(self._stopped(name, "stale"))
        self.run(self._check())

    @precondition(lambda self: self.undo_steps)
    @rule()
    def undo(self) -> None:
        before = list(self.lines)
        self.lines = self.undo_steps.pop()
        self.run(_now(self.editor.undo))
        self.run(self._after_replacing(before))

    @rule(data=st.data())
    def format_on_save(self, data: st.DataObject) -> None:
        """The formatter sends the whole document; it may change lines in any place."""
        before = list(self.lines)
        places = [n for n, line in enumerate(self.lines) if line.text]
        changed = data.draw(st.sets(st.sampled_from(places), max_size=3))
        self.remember()
        for n in changed:
            line = self.lines[n]
            self.lines[n] = line._replace(text=line.text + "  # formatted")
        self.run(_now(lambda: self.editor.replace_document(self.text)))
        self.run(self._after_replacing(before))

    async def _after_replacing(self, before: list[Line]) -> None:
        """A job is stale when what changed, taken as one piece, reaches into its function."""
        old, new = (self.line_end.join(x.text for x in lines) for lines in (before, self.lines))
        start = _common(old, new)
        end = len(old) - _common(old[start:][::-1], new[start:][::-1])
        for name in list(self.work):
            function = self.line_end.join(line.text for line in before if line.owner == name)
            first = old.index(function)
            if start < first + len(function) and end > first and old != new:
                await self._stopped(name, "stale")
        await self._check()

    @rule()
    def close_and_open(self) -> None:
        self.run(self._close_and_open())
        self.run(self._check())

    async def _close_and_open(self) -> None:
        self.editor.close()
        for name in list(self.work):
            await self._stopped(name, "cancelled")
        self.undo_steps = []
        self.editor.open("a.py", self.text)

    def teardown(self) -> None:
        if hasattr(self, "work"):
            self.run(self._end())

    async def _end(self) -> None:
        try:
            await self._close_and_open()
            await self.editor.reset()
        finally:
            await self.engine.wait_until_idle()
            self.engine.reset()


def _common(one: str, other: str) -> int:
    """How many characters at the start are the same."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


async def _now(act: Any) -> None:
    """Act inside the event loop, as what the server sends is answered there."""
    act()


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.encoding)
def test_any_order_of_events_leaves_the_text_that_the_choices_imply(client: Client) -> None:
    loop = asyncio.new_event_loop()

    with tempfile.TemporaryDirectory() as folder:
        engine = ScriptedEngine(Path(folder))
        loop.run_until_complete(engine.__aenter__())
        started = Editor.started(client, engine)
        editor = loop.run_until_complete(started.__aenter__())
        storm = type("Storm", (Storm,), {"loop": loop, "editor": editor, "engine": engine})
        try:
            run_state_machine_as_test(
                storm,
                settings=settings(
                    max_examples=12,
                    # Shrinking through a server takes minutes; the steps that failed are printed.
                    phases=(Phase.generate,),
                    derandomize=True,
                    database=None,
                    stateful_step_count=30,
                    deadline=None,
                    suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much),
                ),
            )
        finally:
            loop.run_until_complete(started.__aexit__(None, None, None))
            loop.run_until_complete(engine.__aexit__())
            loop.close()
