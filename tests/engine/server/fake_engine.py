"""An engine process without a model: the last message of a request is its script.

A script is a JSON list of steps:
    ["progress", phase, fraction]   report progress
    ["text", text]                  write text
    ["copy", text, start]           write text copied from the source
    ["hold"]                        wait for the cancel, asking as the real loop does
    ["until", path]                 wait until the file exists; a cancel ends it
    ["stuck", path]                 the same, but deaf to the cancel
    ["touch", path]                 make a file
    ["error", code]                 raise an EngineError
    ["raise", name]                 raise the exception of that name
    ["finish", reason]              end; without it the answer ends with `stop`
Anything else is answered with itself.
"""

from __future__ import annotations

import builtins
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from engine.__main__ import _parser
from engine.core import (
    Cancelled,
    CopiedRun,
    EngineError,
    Event,
    Finished,
    GenerationRequest,
    GenerationStats,
    IsCancelled,
    Progress,
    RunnerState,
    TextDelta,
)
from engine.server.lifecycle import ServeOptions, run

# Stands for source text in an error's message.
SECRET = "secret words of the source"


class OutOfMemoryError(RuntimeError):
    """Named as torch's."""


class FakeGenerator:
    """Follows the script of the request."""

    def __init__(self) -> None:
        self.loaded_model: str | None = None

    @property
    def running(self) -> RunnerState | None:
        """How the model is run, once there is one."""
        return RunnerState("fake", "cpu", "none", True, "") if self.loaded_model else None

    def close(self) -> None:
        """Nothing to close."""

    def generate(self, request: GenerationRequest, is_cancelled: IsCancelled) -> Iterator[Event]:
        self.loaded_model = request.model
        text = request.messages[-1].content
        stats = GenerationStats(
            model=request.model,
            runner="fake",
            device="cpu",
            dtype="none",
            prompt_tokens=7,
            cached_prompt_tokens=2,
            tokens=0,
            prefill_seconds=0.5,
            decode_seconds=0.25,
        )
        for step in _steps(text):
            match step:
                case ["progress", phase, fraction]:
                    yield Progress(phase, fraction, f"detail of {phase}")
                case ["text", written]:
                    stats.tokens += 1
                    stats.passes += 1
                    yield TextDelta(written)
                case ["copy", written, start]:
                    stats.tokens += 4
                    stats.passes += 1
                    stats.drafted += 5
                    stats.accepted += 3
                    stats.drafted_by_origin["source"] = stats.drafted
                    stats.accepted_by_origin["source"] = stats.accepted
                    yield TextDelta(written, (CopiedRun(0, start, len(written)),))
                case ["hold"]:
                    _wait(lambda: False, is_cancelled)
                case ["until", path]:
                    _wait(Path(path).exists, is_cancelled)
                case ["stuck", path]:
                    _wait(Path(path).exists, lambda: False)
                case ["touch", path]:
                    Path(path).touch()
                case ["error", code]:
                    raise EngineError(code, f"The fake engine was told to say {code}.")
                case ["raise", "OutOfMemoryError"]:
                    raise OutOfMemoryError("no room")
                case ["raise", name]:
                    raise getattr(builtins, name)(SECRET)
                case ["end"]:
                    return
                case ["finish", reason]:
                    yield Finished(reason, stats)
                    return
        yield Finished("stop", stats)


def _steps(text: str) -> list[list]:
    try:
        steps = json.loads(text)
    except ValueError:
        return [["text", text]]
    return steps if isinstance(steps, list) else [["text", text]]


def _wait(done, is_cancelled: IsCancelled) -> None:
    while not done():
        if is_cancelled():
            raise Cancelled
        time.sleep(0.002)  # stands for one forward pass


if __name__ == "__main__":
    options = _parser().parse_args()
    sys.exit(
        run(
            FakeGenerator,
            ServeOptions(
                default_model=options.model,
                known_models=["fake-one", "fake-two"],
                idle_seconds=options.idle_seconds,
                tcp=options.tcp,
            ),
        )
    )
