"""The engine's counters, as `/metrics` shows them. Own registry, so tests do not share one."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from engine.core import Finished

_SECONDS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120)


class Metrics:
    """Counts of one engine. Every method may be called on any thread."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "redraft_requests",
            "Answers by how they ended: stop, length, cancelled or an error's code.",
            ["outcome"],
            registry=registry,
        )
        self._tokens = Counter("redraft_tokens", "Tokens generated.", registry=registry)
        self._prompt_tokens = Counter(
            "redraft_prompt_tokens", "Tokens of prompts.", ["cached"], registry=registry
        )
        self._passes = Counter("redraft_passes", "Forward passes.", registry=registry)
        self._drafted = Counter("redraft_drafted", "Drafted tokens.", ["origin"], registry=registry)
        self._accepted = Counter(
            "redraft_accepted", "Drafted tokens accepted.", ["origin"], registry=registry
        )
        self._queued = Gauge("redraft_queued", "Requests that wait.", registry=registry)
        self._active = Gauge("redraft_active", "Requests being answered.", registry=registry)
        self._kept_sequences = Gauge(
            "redraft_prefix_sequences", "Sequences in the prefix cache.", registry=registry
        )
        self._kept_bytes = Gauge(
            "redraft_prefix_bytes", "Bytes of the prefix cache.", registry=registry
        )
        self._first_text = Histogram(
            "redraft_first_token_seconds",
            "Seconds from a request to its first text.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._cancel = Histogram(
            "redraft_cancel_seconds",
            "Seconds from a cancel to the end of its work.",
            buckets=_SECONDS,
            registry=registry,
        )

    def ended(self, outcome: str) -> None:
        """An answer has ended."""
        self._requests.labels(outcome).inc()

    def finished(self, finished: Finished) -> None:
        """Add what a complete answer cost."""
        stats = finished.stats
        self._tokens.inc(stats.tokens)
        self._prompt_tokens.labels("yes").inc(stats.cached_prompt_tokens)
        self._prompt_tokens.labels("no").inc(
            max(0, stats.prompt_tokens - stats.cached_prompt_tokens)
        )
        self._passes.inc(stats.passes)
        for origin, count in stats.drafted_by_origin.items():
            self._drafted.labels(origin).inc(count)
        for origin, count in stats.accepted_by_origin.items():
            self._accepted.labels(origin).inc(count)

    def first_text(self, seconds: float) -> None:
        """The first text of an answer came after so many seconds."""
        self._first_text.observe(seconds)

    def cancel_took(self, seconds: float) -> None:
        """The work of a cancelled answer ended after so many seconds."""
        self._cancel.observe(seconds)

    def text(
        self, *, active: int, queued: int, kept_sequences: int = 0, kept_bytes: int = 0
    ) -> bytes:
        """Prometheus' text format."""
        self._active.set(active)
        self._queued.set(queued)
        self._kept_sequences.set(kept_sequences)
        self._kept_bytes.set(kept_bytes)
        return generate_latest(self._registry)
