from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.loader import LoadedModel, load_model
from tests.tiny import save_tiny_model


@pytest.fixture(scope="session", params=["qwen2", "llama"])
def tiny_target(request, tmp_path_factory) -> LoadedModel:
    """A tiny random model on the CPU in float32, of either architecture."""
    folder = save_tiny_model(tmp_path_factory.mktemp(request.param), request.param)
    return load_on_one_thread(f"tiny-{request.param}", folder)


@pytest.fixture(scope="session")
def tiny_qwen2(tmp_path_factory) -> LoadedModel:
    """One tiny random model, where the architecture does not matter."""
    folder = save_tiny_model(tmp_path_factory.mktemp("qwen2-one"), "qwen2")
    return load_on_one_thread("tiny", folder)


def load_on_one_thread(name: str, folder: Path) -> LoadedModel:
    """Load on the CPU; for tiny matrices a second thread costs more than it brings."""
    loaded = load_model(name, folder, "cpu", "float32")
    torch.set_num_threads(1)
    return loaded
