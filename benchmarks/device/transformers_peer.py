"""transformers' own float32 `generate`, in a process of its own that waits for its turns.

    python -m benchmarks.device.transformers_peer FOLDER PROMPT_TOKENS TOKENS

Answers every line on stdin with the seconds of TOKENS tokens, after one line when the
model is loaded.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmarks.device.passes import timed, tokens_of
from engine.threads import limit_spinning


class Generate(AbstractContextManager["Generate"]):
    """The process, from outside.

    Args:
        folder: the model in Hugging Face layout.
        prompt: tokens of the prompt.
        tokens: to be decoded each time.
    """

    def __init__(self, folder: Path, prompt: int, tokens: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder), str(prompt), str(tokens)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_until_loaded(self) -> None:
        """Wait for the model.

        Raises:
            RuntimeError: the process has ended; it has told why on stderr.
        """
        self._line()

    def seconds(self) -> float:
        """Return the seconds of one more run; those for the first token are not counted."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._line())

    def _line(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("transformers' generate has ended; see above.")
        return line

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def main() -> None:
    """Load, then serve turns."""
    limit_spinning()
    import os

    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    if hasattr(os, "sched_getaffinity"):
        torch.set_num_threads(len(os.sched_getaffinity(0)))
    folder, prompt, tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
    )
    ids = torch.tensor([tokens_of(prompt, 3)])

    def run(count: int) -> float:
        settings = {"do_sample": False, "min_new_tokens": count, "max_new_tokens": count}
        return timed(lambda: model.generate(ids, attention_mask=torch.ones_like(ids), **settings))

    run(2)  # not counted
    print("loaded", flush=True)
    for _ in sys.stdin:
        one = run(1)
        print(run(tokens + 1) - one, flush=True)


if __name__ == "__main__":
    main()
