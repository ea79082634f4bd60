"""How few passes each drafter needs, without a model: real edits are replayed.

    python -m benchmarks.replay --data FILE | --git REPO[@REV] [--tokenizer MODEL]
        [--drafter NAME[,NAME]] [--window N] [--json] [--by kind,language,copy_ratio]
        [--answers FILE] [--draft-model NAME [--draft-cost SHARE]] [--limit N] [--part I/N]
        [--worst N]

The reference text plays the target model (benchmarks/replay/measure.py). Everything but the
times is the same in every run. With `--answers` the reference is what a real target wrote
(`python -m benchmarks.record`). Drafters of the product: `cascade` (all that need no model,
as trees), `chain` (the same without branches), `source`, `ngram`; `cascade+workspace` and
`chain+workspace` also read the workspace's other files (benchmarks/replay/neighbours.py).
Others: benchmarks/replay/peers.py, and `oracle`, which copies perfectly and guesses nothing.

With `--draft-model` the drafters `cascade` and `chain` are replayed a second time with that
model, which is really run (benchmarks/replay/small_model.py); its passes and time are printed
too. `--part 2/4` takes the second of four parts of the edits, for a long run in pieces.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.common import MODEL, part, part_of
from benchmarks.replay import summary
from benchmarks.replay.answers import read, with_answers
from benchmarks.replay.git_edits import mine
from benchmarks.replay.items import BadInput, Item, items_of, load_tokens, read_edits
from benchmarks.replay.measure import Result, replay
from benchmarks.replay.oracle import Oracle
from benchmarks.replay.peers import PEERS
from benchmarks.replay.small_model import load_draft_model, replay_with_model, work_of
from drafters.core import Drafter
from drafters.ngram import NgramDrafter
from drafters.source import SourceDrafter
from drafters.standard import standard

GROUPS = ("kind", "language", "copy_ratio")
WORST_BEYOND = 16.0
"""Tokens per pass from which the worst items are counted."""

OURS: dict[str, Callable[[], Drafter]] = {
    "cascade": lambda: standard(trees=True),
    "chain": lambda: standard(trees=False),
    "source": SourceDrafter,
    "ngram": NgramDrafter,
}
WITH_WORKSPACE = "+workspace"
"""Behind a name: the drafter reads the workspace too."""

NAMES = (*OURS, "cascade+workspace", "chain+workspace", *PEERS, "oracle")


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay and print; the exit code is 2 where the input is of no use."""
    parser = argparse.ArgumentParser(description="How few passes each drafter needs.")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--data", type=Path, help="edits as JSON lines")
    given.add_argument("--git", metavar="REPO[@REV]", help="edits from a repository's history")
    parser.add_argument("--answers", type=Path, help="recorded answers, instead of `after`")
    parser.add_argument("--tokenizer", default=MODEL, help="a model or a folder")
    parser.add_argument("--drafter", default="cascade", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--window", type=_rows, default=48, help="drafted rows of a pass")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--by", default="", help=f"groups, of {', '.join(GROUPS)}")
    parser.add_argument("--limit", type=_rows, help="only the first edits")
    parser.add_argument("--draft-model", help="a model of the store, or a folder")
    parser.add_argument(
        "--draft-cost", type=_share, default=0.0, help="of a target's pass, for one of its own"
    )
    parser.add_argument("--part", type=part, default=(1, 1), metavar="I/N")
    parser.add_argument("--worst", type=int, default=0, help="name the worst items")
    options = parser.parse_args(arguments)
    try:
        names = _names(options.drafter, NAMES, "drafter")
        groups = _names(options.by, GROUPS, "group") if options.by else []
        if options.git:
            edits = mine(options.git, options.limit)
        else:
            edits = read_edits(options.data, None if options.answers else options.limit)
        if options.answers:
            edits = with_answers(edits, read(options.answers))[: options.limit]
        edits = list(part_of(edits, options.part))
        items = list(items_of(edits, load_tokens(options.tokenizer)))
        small = load_draft_model(options.draft_model) if options.draft_model else None
    except BadInput as error:
        print(f"replay: {error}", file=sys.stderr)
        return 2
    results = {name: run(name, items, options.window) for name in names}
    for name in [name for name in names if small is not None and name in ("cascade", "chain")]:
        assert small is not None
        found = replay_with_model(small, items, options.window, options.draft_cost, name != "chain")
        results[f"{name} + {options.draft_model}"] = found
    if options.json:
        printed = _as_json(results, groups)
        if small is not None:
            printed["draft_model"] = work_of(small)
        print(json.dumps(printed))
        return 0
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    rows = {name: summary.figures(found) for name, found in results.items()}
    summary.print_table(console, f"{options.window} rows", rows)
    for name, row in rows.items():
        summary.print_details(console, name, row)
    if small is not None:
        done = ", ".join(f"{name} {value:.6g}" for name, value in work_of(small).items())
        console.print(f"{options.draft_model}: {done}")
    for group in groups:
        for name, found in results.items():
            parts = summary.by_group(found, group)
            summary.print_table(
                console, f"{name} by {group}", {k: summary.figures(v) for k, v in parts.items()}
            )
    for name, found in results.items() if options.worst else ():
        console.print(f"worst of {name}:")
        summary.print_worst(console, summary.worst(found, options.worst, WORST_BEYOND))
    return 0


def run(name: str, items: Sequence[Item], window: int) -> list[Result]:
    """Replay all items with the drafter of a name."""
    if name == "oracle":
        return [replay(Oracle(item.reference), item, window) for item in items]
    plain = name.removesuffix(WITH_WORKSPACE)
    make = OURS.get(plain) or PEERS[plain]
    if plain == name:
        return [replay(make(), item, window) for item in items]
    # An index is made for one item at a time: of a large repository all would fill memory.
    found = []
    for item in items:
        known = item.in_workspace()
        found.append(replay(make(), known, window)._replace(item=item))
    return found


def _as_json(results: dict[str, list[Result]], groups: Sequence[str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, own in results.items():
        row = summary.figures(own)
        for group in groups:
            parts = summary.by_group(own, group)
            row[f"by_{group}"] = {value: summary.figures(part) for value, part in parts.items()}
        found[name] = row
    return found


def _names(text: str, known: Sequence[str], what: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise BadInput(f"There is no {what} {name!r}; take of {', '.join(known)}.")
    return names


def _share(text: str) -> float:
    share = float(text)
    if not 0.0 <= share <= 10.0:
        raise argparse.ArgumentTypeError("must be from 0 to 10")
    return share


def _rows(text: str) -> int:
    rows = int(text)
    if rows < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return rows


if __name__ == "__main__":
    sys.exit(main())
