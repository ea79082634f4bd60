"""Writes docs/drafters.md and its picture from one run of the replay.

python -m benchmarks.replay.page --data FILE [--tokenizer MODEL] [--limit N]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import MODEL
from benchmarks.replay import summary
from benchmarks.replay.__main__ import WORST_BEYOND, run
from benchmarks.replay.items import BadInput, items_of, load_tokens, read_edits
from benchmarks.replay.measure import CAUSES, Result
from benchmarks.replay.peers import PEERS

DOCS = Path(__file__).parents[2] / "docs"
SHOWN = {
    "none": "plain decoding",
    "efficientedit-reuse": "EfficientEdit's reuse rule, without its draft model",
    "transformers": "transformers' prompt look-up, its defaults",
    "llama-ngram-map": "n-gram map as llama.cpp's, 12 and 48",
    "vllm-ngram": "n-gram as vLLM's, 2 to 5, 20 tokens",
    "longest-match": "longest match, as many tokens as rows",
    "oracle": "perfect copying of the source, no guess at new text",
    "chain": "redraft, without branches",
    "cascade": "redraft",
    "cascade+workspace": "redraft, with the workspace's other files",
}
WINDOWS = (16, 48)
GROUPS = ("kind", "language", "copy_ratio")
BEST_PEER = "longest-match"
PEER_NAMES = tuple(name for name in PEERS if name != "none")
OURS = "cascade+workspace"
WORST = 10
AIM = 1.5
AIMED_AT = {
    "kind": ("rename", "type-hints", "lint-fix", "format"),
    "copy_ratio": ("0.5 to 0.8", "below 0.5"),
}
"""Groups in which at least `AIM` times the tokens per pass of the best peer are wanted."""

INTRO = """# How few passes

A pass of the target model costs about the same for one token as for a dozen, so what counts
is how many tokens it gives. The replay measures that without a model: real edits are written
again, their own text playing the target, and a drafted token is accepted when it is the next
one. Of a token tree all rows count as drafted.

    {command}

printed what follows, over {items} edits with {tokens} tokens.
"""

WHO = """## Who is who

- **transformers' prompt look-up** (Saxena 2023): the library's own class is called, with its
  defaults: matches of the last one or two tokens, ten tokens drafted.
- **vLLM's n-gram**: the longest match of the last five to two tokens, its first occurrence,
  twenty tokens. The lengths are settings of that system; these were chosen here.
- **llama.cpp's n-gram map**: the last occurrence of the last 12 tokens, 48 tokens drafted, its
  defaults. How it counts hits of a key is left out.
- **EfficientEdit** (arXiv 2506.02780): the whole rest of the source; after a refusal the place
  is taken up where the last 7 tokens stand in the rest, the first such place. Its draft model,
  which writes in between, is left out.
- **longest match**: the longest match of 1 to 32 tokens anywhere before, the latest of equal
  ones, as many tokens as there are rows: the best simple look-up, of no project in particular.
- **perfect copying**: knows the answer, copies the source and nothing else; what copying alone
  could reach.

All see the same prompt, the source included, and the same rows a pass; a rule that drafts
fewer tokens than there are rows stays at its own number. Only redraft uses the source and the
instruction as such, drafts trees, and is shown other files where a line says so. Suffix
decoding (arctic-inference) is not compared: its package has to be built from C++ and was not
built here.
"""

OWN = """## On your own code

    python -m benchmarks.replay --git PATH@main --drafter cascade,longest-match,vllm-ngram

takes the edits from the history of a local repository: commits that change one function or
one file of 10 to 600 lines, with the commit's message as the instruction. `--json`, `--by
kind,language,copy_ratio` and `--worst N` tell more; see `--help`.

`cascade+workspace` beside `cascade` also drafts from the workspace's other files. With `--git`
these are the files of the same language in the parent commit, the nearest first, at most 200
files and 2 MiB. With `--data` they are made of the other edits: their texts before the edit,
of the same repository and language, never of the same path, which could hold the answer.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay all that is shown; write the page."""
    parser = argparse.ArgumentParser(description="Make the page about the drafters.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tokenizer", default=MODEL)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder to write into")
    options = parser.parse_args(arguments)
    try:
        edits = read_edits(options.data, options.limit)
        items = list(items_of(edits, load_tokens(options.tokenizer)))
    except BadInput as error:
        print(f"page: {error}", file=sys.stderr)
        return 2
    results = {(name, window): run(name, items, window) for window in WINDOWS for name in SHOWN}
    rows = {key: summary.figures(found) for key, found in results.items()}
    command = f"python -m benchmarks.replay.page --data {options.data.name}"
    first = rows["none", WINDOWS[0]]
    parts = [INTRO.format(command=command, items=first["items"], tokens=first["tokens"])]
    parts.append("![Tokens per pass](images/drafters.svg)\n")
    parts += [_table(rows, window) for window in WINDOWS]
    parts.append(_causes(rows[OURS, WINDOWS[-1]], rows[BEST_PEER, WINDOWS[-1]]))
    parts += [
        _groups(group, {name: results[name, WINDOWS[-1]] for name in (OURS, *PEER_NAMES)})
        for group in GROUPS
    ]
    parts.append(_worst(results[OURS, WINDOWS[-1]]))
    parts.append(WHO)
    parts.append(OWN)
    (options.docs / "images").mkdir(parents=True, exist_ok=True)
    (options.docs / "drafters.md").write_text("\n".join(parts), "utf-8")
    draw(options.docs / "images" / "drafters.svg", rows)
    return 0


def draw(file: Path, rows: dict[tuple[str, int], dict[str, Any]]) -> None:
    """Draw tokens per pass of all that is shown, for both windows."""
    # The same bytes for the same figures: no time of making, no random names.
    os.environ.setdefault("SOURCE_DATE_EPOCH", "0")
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "redraft"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
    names = list(SHOWN)
    for offset, (window, colour) in enumerate(zip(WINDOWS, ("#9db7d5", "#1f5a96"), strict=True)):
        places = [index + 0.4 * offset for index in range(len(names))]
        values = [rows[name, window]["tokens_per_pass"] for name in names]
        bars = axes.barh(places, values, 0.38, color=colour, label=f"{window} drafted rows")
        axes.bar_label(bars, fmt="%.1f", padding=2, fontsize=8)
    axes.set_yticks([i + 0.2 for i in range(len(names))], [SHOWN[n] for n in names], fontsize=8)
    axes.set_xlabel("tokens per pass, over all tokens")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", fontsize=8)
    figure.savefig(file)
    plt.close(figure)


def _table(rows: dict[tuple[str, int], dict[str, Any]], window: int) -> str:
    lines = [
        f"## {window} drafted rows a pass\n",
        "| drafter | tokens per pass | median item | 10th percentile | rows drafted a pass |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, title in SHOWN.items():
        row = rows[name, window]
        lines.append(
            f"| {title} | {row['tokens_per_pass']:.2f} | {row['median']:.2f} | {row['p10']:.2f} "
            f"| {row['drafted'] / row['passes']:.1f} |"
        )
    return "\n".join(lines) + "\n"


def _causes(ours: dict[str, Any], peer: dict[str, Any]) -> str:
    lines = [
        f"## Where passes go, {WINDOWS[-1]} rows\n",
        f"| cause | redraft | {SHOWN[BEST_PEER]} |",
        "| --- | --- | --- |",
    ]
    for cause in CAUSES:
        shares = (row["causes"][cause] for row in (ours, peer))
        counts = (row["causes"][cause] * row["passes"] for row in (ours, peer))
        cells = (f"{count:.0f} ({share:.0%})" for count, share in zip(counts, shares, strict=True))
        lines.append(f"| {cause} | {' | '.join(cells)} |")
    accepted = ", ".join(f"{name} {share:.0%}" for name, share in ours["acceptance"].items())
    lines.append(f"\nAccepted of the rows that redraft drafted, by origin: {accepted}.")
    return "\n".join(lines) + "\n"


def _groups(group: str, results: dict[str, list[Result]]) -> str:
    title = {"kind": "kind of edit", "copy_ratio": "share of copied lines"}.get(group, group)
    lines = [
        f"## By {title}, {WINDOWS[-1]} rows\n",
        f"| {title} | items | redraft | best peer | its | ratio |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    parts = {name: summary.by_group(found, group) for name, found in results.items()}
    for value, own in parts[OURS].items():
        rates = {name: _rate(part[value]) for name, part in parts.items()}
        best = max(PEER_NAMES, key=rates.__getitem__)
        ratio = rates[OURS] / rates[best]
        aim = f" (aim {AIM})" if value in AIMED_AT.get(group, ()) else ""
        lines.append(
            f"| {value} | {len(own)} | {rates[OURS]:.2f} | {best} | {rates[best]:.2f} "
            f"| {ratio:.2f}{aim} |"
        )
    return "\n".join(lines) + "\n"


def _rate(results: Sequence[Result]) -> float:
    return sum(result.tokens for result in results) / sum(result.passes for result in results)


def _worst(results: Sequence[Result]) -> str:
    lines = [
        f"## The {WORST} worst items, {WINDOWS[-1]} rows\n",
        f"Those with most passes beyond what {WORST_BEYOND:g} tokens per pass would take.\n",
        "| item | kind, language, copied lines | tokens | passes | " + " | ".join(CAUSES) + " |",
        "| --- " * (4 + len(CAUSES)) + "|",
    ]
    for result in summary.worst(results, WORST, WORST_BEYOND):
        groups = ", ".join(result.item.groups.get(name, "unknown") for name in GROUPS)
        causes = " | ".join(str(result.causes[name]) for name in CAUSES)
        lines.append(
            f"| {result.item.id} | {groups} | {result.tokens} | {result.passes} | {causes} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
