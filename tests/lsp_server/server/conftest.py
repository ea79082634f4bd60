"""Servers and a scripted engine for all tests of this folder, checked after each test.

A server takes a second to start, so each kind of client has one for all tests; `reset`
makes sure that a test leaves nothing behind.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.editor.clients import NEOVIM, PLAIN, VS_CODE, Client
from tests.editor.editor import Editor
from tests.editor.scripted_engine import ScriptedEngine

UTF_32 = VS_CODE.with_encoding("utf-32")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All async tests of this folder share one event loop, as their servers do."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("asyncio"):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_engine() -> AsyncIterator[ScriptedEngine]:
    # Not tmp_path: a socket's path has at most about 100 characters.
    with tempfile.TemporaryDirectory() as folder:
        async with ScriptedEngine(Path(folder)) as engine:
            yield engine


async def _shared(client: Client, engine: ScriptedEngine) -> AsyncIterator[Editor]:
    async with Editor.started(client, engine) as editor:
        yield editor


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_vs_code(shared_engine: ScriptedEngine) -> AsyncIterator[Editor]:
    async for editor in _shared(VS_CODE, shared_engine):
        yield editor


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_neovim(shared_engine: ScriptedEngine) -> AsyncIterator[Editor]:
    async for editor in _shared(NEOVIM, shared_engine):
        yield editor


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_plain(shared_engine: ScriptedEngine) -> AsyncIterator[Editor]:
    async for editor in _shared(PLAIN, shared_engine):
        yield editor


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_utf_32(shared_engine: ScriptedEngine) -> AsyncIterator[Editor]:
    async for editor in _shared(UTF_32, shared_engine):
        yield editor


@pytest_asyncio.fixture(loop_scope="session")
async def engine(shared_engine: ScriptedEngine) -> AsyncIterator[ScriptedEngine]:
    yield shared_engine
    await shared_engine.wait_until_idle()
    shared_engine.reset()


@pytest_asyncio.fixture(loop_scope="session")
async def editor(shared_vs_code: Editor, engine: ScriptedEngine) -> AsyncIterator[Editor]:
    """VS Code: utf-16, hunks, versioned edits with an equality check."""
    yield shared_vs_code
    await shared_vs_code.reset()


@pytest_asyncio.fixture(loop_scope="session")
async def neovim(shared_neovim: Editor, engine: ScriptedEngine) -> AsyncIterator[Editor]:
    """Neovim: utf-8, drops edits of older versions and says that they were applied."""
    yield shared_neovim
    await shared_neovim.reset()


@pytest_asyncio.fixture(loop_scope="session")
async def plain(shared_plain: Editor, engine: ScriptedEngine) -> AsyncIterator[Editor]:
    """A client that knows nothing of redraft, and little of LSP."""
    yield shared_plain
    await shared_plain.reset()


@pytest_asyncio.fixture(loop_scope="session", params=["utf-8", "utf-16", "utf-32"])
async def any_encoding(
    request: pytest.FixtureRequest,
    shared_neovim: Editor,
    shared_vs_code: Editor,
    shared_utf_32: Editor,
    engine: ScriptedEngine,
) -> AsyncIterator[Editor]:
    """One editor for each position encoding."""
    editors = {"utf-8": shared_neovim, "utf-16": shared_vs_code, "utf-32": shared_utf_32}
    chosen = editors[request.param]
    yield chosen
    await chosen.reset()
