"""llama.cpp's own `llama-bench`: where it is named, or built from a public package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from engine.store.cache import models_folder, private_folder

PACKAGE = "llama-cpp-python"
VERSION = "0.3.36"
"""Its source distribution on PyPI holds llama.cpp's sources whole."""

ROWS = 32
SINGLE = 16


class Rates(NamedTuple):
    """Tokens a second of one run of llama-bench.

    Attributes:
        prompt: for `ROWS` tokens at once, by tokens of context before them.
        single: token by token, likewise.
        build: llama.cpp's commit or build, and what it calls the model.
    """

    prompt: dict[int, float]
    single: dict[int, float]
    build: str


def run(program: str | Path, gguf: Path, contexts: Sequence[int], threads: int) -> Rates:
    """Run llama-bench once: a warm-up of its own, then each test once.

    Raises:
        RuntimeError: it failed.
    """
    done = subprocess.run(
        [str(program), "-m", str(gguf), "-p", str(ROWS), "-n", str(SINGLE),
         "-d", ",".join(map(str, contexts)), "-r", "1", "-t", str(threads), "-ngl", "0",
         "-o", "json"],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"llama-bench failed: {done.stderr.strip()[-500:]}")
    tests = json.loads(done.stdout)
    return Rates(
        {test["n_depth"]: test["avg_ts"] for test in tests if test["n_prompt"]},
        {test["n_depth"]: test["avg_ts"] for test in tests if test["n_gen"]},
        f"{tests[0]['build_number']} ({tests[0]['build_commit']}), {tests[0]['model_type']}",
    )


def built(say: Callable[[str], None]) -> Path:
    """Return llama-bench of `PACKAGE`, built into the cache where it is missing.

    Raises:
        SystemExit: cmake or a compiler is missing, or the build failed.
    """
    folder = models_folder().parent / "peers" / f"{PACKAGE}-{VERSION}"
    program = folder / "build" / "bin" / "llama-bench"
    if program.exists():
        return program
    if shutil.which("cmake") is None:
        raise SystemExit("llama.cpp is built with cmake, which is missing; install it.")
    say(f"building llama-bench of {PACKAGE} {VERSION}; this takes minutes, once")
    private_folder(folder)
    fetch = ["-m", "pip", "download", "-q", "--no-deps", "--no-binary", PACKAGE]
    _step([sys.executable, *fetch, "-d", str(folder), f"{PACKAGE}=={VERSION}"])
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (source,) = folder.glob("*/vendor/llama.cpp")
    switches = ("BUILD_SHARED_LIBS", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_SERVER", "LLAMA_OPENSSL")
    off = [f"-D{name}=OFF" for name in switches]
    build = str(folder / "build")
    _step(["cmake", "-S", str(source), "-B", build, "-DCMAKE_BUILD_TYPE=Release", *off])
    jobs = str(os.cpu_count() or 1)
    _step(["cmake", "--build", build, "--target", "llama-bench", "-j", jobs])
    return program


def _step(command: Sequence[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(f"{done.stdout.strip()[-2000:]}\nllama.cpp could not be built.")
