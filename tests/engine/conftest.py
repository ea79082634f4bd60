from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.int8.linear import is_supported
from engine.loader import LoadedModel, load_model
from tests.tiny import save_tiny_model


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Keep int8 weights and other caches of tests out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REDRAFT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(
    scope="session",
    params=[
        (kind, dtype) for dtype in ("float32", "bfloat16", "int8") for kind in ("qwen2", "llama")
    ],
    ids="-".join,
)
def tiny_target(request, tmp_path_factory) -> LoadedModel:
    """A tiny random model on the CPU, of either architecture, on every exact runner."""
    kind, dtype = request.param
    if dtype == "int8" and not is_supported():
        pytest.skip("this torch has no FBGEMM kernels, so there is no int8 runner here")
    folder = save_tiny_model(tmp_path_factory.mktemp(kind), kind)
    return load_on_one_thread(f"tiny-{kind}", folder, dtype)


@pytest.fixture(scope="session")
def tiny_qwen2(tmp_path_factory) -> LoadedModel:
    """One tiny random model, where the architecture does not matter."""
    folder = save_tiny_model(tmp_path_factory.mktemp("qwen2-one"), "qwen2")
    return load_on_one_thread("tiny", folder, "float32")


@pytest.fixture(scope="session")
def tiny_qwen2_int8(tmp_path_factory) -> LoadedModel:
    """The same kind of model on the runner that makes no difference between rows."""
    if not is_supported():
        pytest.skip("this torch has no FBGEMM kernels, so there is no int8 runner here")
    folder = save_tiny_model(tmp_path_factory.mktemp("qwen2-int8"), "qwen2")
    return load_on_one_thread("tiny-int8", folder, "int8")


def load_on_one_thread(name: str, folder: Path, dtype: str) -> LoadedModel:
    """Load on the CPU; for tiny matrices a second thread costs more than it brings."""
    loaded = load_model(name, folder, "cpu", dtype)
    torch.set_num_threads(1)
    return loaded
