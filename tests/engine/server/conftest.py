from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.server.process import EngineProcess, running_engine


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A runtime folder with a path short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="rd-"))
    yield folder / "run"
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def shared_engine() -> Iterator[EngineProcess]:
    """One engine for the tests that leave it as they found it."""
    folder = Path(tempfile.mkdtemp(prefix="rd-"))
    with running_engine(folder / "run") as engine:
        yield engine
    shutil.rmtree(folder)
