"""Results of many edits as figures: JSON, a table for people, groups, the worst items."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.replay.measure import CAUSES, Result


def figures(results: Sequence[Result]) -> dict[str, Any]:
    """Return the figures of one drafter.

    `tokens_per_pass` is over all tokens, `median` and `p10` are over items.
    """
    passes = sum(result.passes for result in results)
    tokens = sum(result.tokens for result in results)
    rates = sorted(result.rate for result in results)
    seconds = sorted(s for result in results for s in result.proposal_seconds)
    drafted, accepted, causes = Counter[str](), Counter[str](), Counter[str]()
    for result in results:
        drafted += result.drafted_by_origin
        accepted += result.accepted_by_origin
        causes += result.causes
    context = sum(result.context_tokens for result in results)
    return {
        "items": len(results),
        "tokens": tokens,
        "passes": passes,
        "tokens_per_pass": tokens / passes,
        "median": statistics.median(rates),
        "p10": rates[int(0.1 * len(rates))],
        "drafted": sum(result.drafted for result in results),
        "microseconds_per_proposal": 1e6 * statistics.median(seconds),
        "p99_microseconds": 1e6 * seconds[int(0.99 * len(seconds))],
        "begin_ms_per_1000_tokens": 1e6 * sum(r.begin_seconds for r in results) / max(context, 1),
        "acceptance": {name: accepted[name] / drafted[name] for name in sorted(drafted)},
        "causes": {name: causes[name] / passes for name in CAUSES},
    }


def by_group(results: Iterable[Result], name: str) -> dict[str, list[Result]]:
    """Return the results of each value of a group, in order of the values."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.item.groups.get(name, "unknown"), []).append(result)
    return dict(sorted(groups.items()))


def worst(results: Iterable[Result], count: int, rate: float) -> list[Result]:
    """Return the items with most passes beyond what `rate` tokens per pass would take."""
    return sorted(results, key=lambda r: r.tokens / rate - r.passes)[:count]


def print_table(console: Console, title: str, rows: dict[str, dict[str, Any]]) -> None:
    """Print the figures of several drafters, or groups, below each other."""
    table = Table(title, "items", "passes", "tokens/pass", "median", "p10", "rows/pass",
                  "us/proposal (p99)", "ms/1000 tokens")  # fmt: skip
    for name, row in rows.items():
        table.add_row(
            name,
            str(row["items"]),
            str(row["passes"]),
            f"{row['tokens_per_pass']:.2f}",
            f"{row['median']:.2f}",
            f"{row['p10']:.2f}",
            f"{row['drafted'] / row['passes']:.1f}",
            f"{row['microseconds_per_proposal']:.0f} ({row['p99_microseconds']:.0f})",
            f"{row['begin_ms_per_1000_tokens']:.2f}",
        )
    console.print(table)


def print_details(console: Console, name: str, row: dict[str, Any]) -> None:
    """Print acceptance by origin and the share of passes by cause."""
    accepted = ", ".join(f"{origin} {share:.0%}" for origin, share in row["acceptance"].items())
    causes = ", ".join(f"{cause} {share:.0%}" for cause, share in row["causes"].items())
    console.print(f"{name}: accepted of {accepted or 'nothing'}; passes: {causes}")


def print_worst(console: Console, results: Sequence[Result]) -> None:
    """Print items with their passes by cause."""
    for result in results:
        causes = ", ".join(f"{name} {result.causes[name]}" for name in CAUSES)
        groups = ", ".join(result.item.groups.values())
        console.print(
            f"{result.item.id} ({groups}): {result.tokens} tokens in {result.passes} passes: "
            f"{causes}"
        )
