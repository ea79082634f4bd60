"""Records a real target's own greedy answers to edits, for the replay.

    python -m benchmarks.record --data FILE --out FILE [--model NAME] [--items N]

Functions first, short ones before long ones; what is there already is skipped, so a run may
be stopped and gone on with. Drafts are on, which changes no token. Replay them with
`python -m benchmarks.replay --data FILE --answers FILE`. Keep the file out of the
repository: the code of the edits has its own licences.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.common import MODEL
from benchmarks.replay import answers
from benchmarks.replay.items import BadInput, read_edits
from engine.core import EngineError, Finished, GenerationRequest, Message, TextDelta
from engine.host import ModelHost
from lsp_server.core import RewriteRequest, Span
from lsp_server.prompts import build_prompt


def main(arguments: Sequence[str] | None = None) -> int:
    """Record what is missing; the exit code is 2 where the input is of no use."""
    parser = argparse.ArgumentParser(description="Record a target's answers to edits.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--items", type=int, default=20, help="answers in all, old ones included")
    options = parser.parse_args(arguments)
    host = ModelHost(None, None, options.model)
    try:
        edits = in_order(read_edits(options.data))
        made_by = {"model": options.model, "edits": answers.sha256_of(options.data)}
        done = answers.read(options.out, made_by)
        for edit in edits[: options.items]:
            if edit["id"] in done:
                continue
            started = time.monotonic()
            answer = {"id": edit["id"], **answer_to(host, edit), "version": version("redraft")}
            answers.append(options.out, answer, made_by)
            print(
                f"{edit['id']}: {answer['tokens']} tokens in {time.monotonic() - started:.0f} s, "
                f"{answer['reason']}",
                flush=True,
            )
    except (BadInput, EngineError) as error:
        print(f"record: {error}", file=sys.stderr)
        return 2
    finally:
        host.close()
    return 0


def in_order(edits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return functions first, and short ones before long ones."""
    return sorted(edits, key=lambda e: (e.get("scope") != "function", len(e["before"]), e["id"]))


def answer_to(host: ModelHost, edit: dict[str, Any]) -> dict[str, Any]:
    """Return the text that the target writes, why it ended, and how many tokens it is."""
    prompt = build_prompt(
        RewriteRequest(
            edit["before"], Span(0, len(edit["before"])), edit["language"], edit["instruction"]
        )
    )
    request = GenerationRequest(
        "default",
        tuple(Message(m["role"], m["content"]) for m in prompt.messages),
        continue_final_message=True,
        source=prompt.source,
        stop=tuple(prompt.stop),
    )
    text = ""
    for event in host.generate(request, lambda: False):
        if isinstance(event, TextDelta):
            text += event.text
        if isinstance(event, Finished):
            return {"text": text, "reason": event.reason, "tokens": event.stats.tokens}
    raise EngineError("internal", "The engine ended without a result.")


if __name__ == "__main__":
    sys.exit(main())
