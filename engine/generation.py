"""One answer: prompt, prefill, verify loop, text.

This is the way of a request through the engine, in order; each step has its own module.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from drafters.core import MODEL, Draft, DraftContext, Drafter
from drafters.standard import standard
from drafters.workspace import WorkspaceIndex
from engine.chances import BRANCH
from engine.chat import SourceTokens
from engine.core import (
    Cancelled,
    EngineError,
    Event,
    Finished,
    GenerationRequest,
    GenerationStats,
    IsCancelled,
    Progress,
    Tick,
)
from engine.draft_model import DraftSession, GreedyDraftModel
from engine.earlier import EarlierRewrites
from engine.kv_cache import KVCache
from engine.loader import LoadedModel
from engine.loop import Pass, verify_loop
from engine.memory import is_out_of_memory
from engine.pieces import pieces_of
from engine.prefix import PrefixCache
from engine.sampling.settings import COUPLED, sampling_of
from engine.text_stream import TextStream
from engine.tree import main_length
from engine.window import WindowPolicy
from engine.workspace.indexes import WorkspaceIndexes

T = TypeVar("T")

NO_SOURCE = SourceTokens([], [])

FIRST_ROOM = 512
"""Tokens of the answer that get room in the KV cache at once; for more it grows."""


def generate(
    target: LoadedModel,
    draft_model: GreedyDraftModel | None,
    prefix: PrefixCache,
    request: GenerationRequest,
    is_cancelled: IsCancelled,
    indexes: WorkspaceIndexes | None = None,
    earlier: EarlierRewrites | None = None,
) -> Iterator[Event]:
    """Yield prefill progress, text as it settles, then `Finished`.

    Where another answer with this prefix cache is reading the same beginning, this one
    waits for it: run both in turns, or close the other one. Of the workspace is used what is
    indexed when the first token is to be drafted; asking for it here has it built meanwhile.

    Args:
        target: writes the answer.
        draft_model: drafts too, or None.
        prefix: the prompts whose keys and values are kept.
        request: what to answer.
        is_cancelled: asked between two steps.
        indexes: of workspaces, or None.
        earlier: the rewrites of the request's window; a finished one is added.

    Raises:
        EngineError: the prompt does not fit.
        Cancelled: `is_cancelled` answered True.
    """
    _workspace_of(request, indexes)
    prompt = target.chat.encode_prompt(request)
    source = _encode_source(target, request)
    limit = answer_limit(request, len(prompt), len(source.tokens), target.runner.max_context)
    stats = _new_stats(target, len(prompt))

    yield from _wait_for_reader(prefix, prompt[:-1], request.exact, is_cancelled)
    stats.kept_sequences, stats.kept_bytes = prefix.sequences, prefix.bytes
    room = len(prompt) + min(limit, FIRST_ROOM)
    cache = prefix.take(prompt[:-1], room, request.exact)
    # The rejection rule keeps the distribution, not the text.
    stats.exact = cache.exact and (request.temperature <= 0 or request.acceptance == COUPLED)
    session = draft_model.session() if draft_model is not None else None
    try:
        stats.cached_prompt_tokens = cache.length
        yield from _prefill(target, cache, prompt, stats, is_cancelled)
        if limit:
            drafter = _drafter(request, session, target.runner.trees)
            if drafter is not None:
                workspace = _workspace_of(request, indexes)
                known = earlier.of(request.window) if earlier is not None else ()
                drafter.begin(_draft_context(target, request, prompt, source, known, workspace))
            text = TextStream(
                target.tokenizer, prompt, request.stop, request.source or "", source.offsets
            )
            for event in _decode(
                target, cache, prompt, request, drafter, session, text, limit, stats, is_cancelled
            ):
                if earlier is not None and isinstance(event, Finished) and source.tokens:
                    # Whoever hears that it is finished may ask for no more.
                    answer = cache.tokens[len(prompt) :][: stats.tokens]
                    earlier.add(request.window, [*source.tokens, *answer])
                yield event
        else:
            yield Finished("length", stats)
    except Exception as error:
        if is_out_of_memory(error):
            prefix.clear()  # the next request needs it more
        raise
    finally:
        prefix.give_back(cache, prompt[:-1])
        if session is not None:
            session.close()


def timed(steps: Iterator[T]) -> Iterator[tuple[T, float]]:
    """Pass steps on with the seconds that each took by itself.

    Between two of them other answers may have their turns, which this one did not cost.
    """
    while True:
        started = time.perf_counter()
        try:
            step = next(steps)
        except StopIteration:
            return
        yield step, time.perf_counter() - started


def answer_limit(
    request: GenerationRequest, prompt_tokens: int, source_tokens: int, max_context: int
) -> int:
    """Return the most tokens that the answer may have.

    A rewrite is about as long as its source; without a word from the client twice that
    and some is allowed.

    Raises:
        EngineError: the prompt leaves no room for the answer in the model's window.
    """
    room = max_context - prompt_tokens
    wanted = request.max_tokens
    if wanted is None:
        wanted = min(2 * source_tokens + 512, max(room, 0))
    if room < 1 or wanted > room or (request.max_tokens is None and room < source_tokens):
        raise EngineError(
            "context_length_exceeded",
            f"The code and the instruction take {prompt_tokens} tokens and the answer needs about "
            f"{max(wanted, source_tokens)}, but this model's window holds {max_context}; select "
            "a smaller part of the file.",
        )
    return wanted


def _encode_source(target: LoadedModel, request: GenerationRequest) -> SourceTokens:
    if not request.source:
        return NO_SOURCE
    # Where the source ends, the answer ends too: draft the stop text behind it.
    return target.chat.encode_source(request.source, request.stop[0] if request.stop else "")


def _wait_for_reader(
    prefix: PrefixCache, prompt: list[int], exact: bool, is_cancelled: IsCancelled
) -> Iterator[Event]:
    """Let another answer read what this one would have to read too."""
    event: Event = Progress("queued", None, "the same code is being read")
    while prefix.is_being_read(prompt, exact):
        if is_cancelled():
            raise Cancelled
        yield event
        event = Tick()


def _drafter(
    request: GenerationRequest, session: DraftSession | None, trees: bool
) -> Drafter | None:
    if not request.draft:
        return None
    return standard(trees, session)


def _workspace_of(
    request: GenerationRequest, indexes: WorkspaceIndexes | None
) -> WorkspaceIndex | None:
    """Return what is indexed of the request's workspace; never waits."""
    if indexes is None or request.workspace is None or not request.draft:
        return None
    return indexes.ready(request.workspace)


def _draft_context(
    target: LoadedModel,
    request: GenerationRequest,
    prompt: list[int],
    source: SourceTokens,
    earlier: Sequence[Sequence[int]],
    workspace: WorkspaceIndex | None,
) -> DraftContext:
    said = [message.content for message in request.messages if message.role == "user"]
    instruction = said[-1] if said else ""
    if request.source:
        instruction = instruction.replace(request.source, "")
    tokenizer = target.tokenizer

    def tokenize(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    return DraftContext(
        prompt,
        source.tokens,
        instruction,
        pieces_of(tokenizer),
        tokenize,
        earlier,
        workspace=workspace,
    )


def _new_stats(target: LoadedModel, prompt_tokens: int) -> GenerationStats:
    return GenerationStats(
        model=target.name,
        runner=target.runner.name,
        device=target.runner.device,
        dtype=target.runner.dtype,
        prompt_tokens=prompt_tokens,
        notice=target.runner.notice,
    )


def _prefill(
    target: LoadedModel,
    cache: KVCache,
    prompt: list[int],
    stats: GenerationStats,
    is_cancelled: IsCancelled,
) -> Iterator[Event]:
    """Run the prompt through the target, all but its last token (the first pass takes it)."""
    missing = prompt[cache.length : -1]
    yield Progress("prefill", 0.0, f"0 of {len(missing)} tokens")
    for done, seconds in timed(target.runner.prefill(cache, missing)):
        stats.prefill_seconds += seconds
        if is_cancelled():
            raise Cancelled
        yield Progress("prefill", done / len(missing), f"{int(done)} of {len(missing)} tokens")


def _decode(
    target: LoadedModel,
    cache: KVCache,
    prompt: list[int],
    request: GenerationRequest,
    drafter: Drafter | None,
    session: DraftSession | None,
    text: TextStream,
    limit: int,
    stats: GenerationStats,
    is_cancelled: IsCancelled,
) -> Iterator[Event]:
    sampling = sampling_of(request, target.runner.vocabulary)
    policy = WindowPolicy(target.cost, target.acceptance, target.runner.max_draft)
    passes = verify_loop(target.runner, cache, prompt[-1], drafter, sampling, limit, policy)
    for step, seconds in timed(passes):
        reason = _feed(step, text, target.end_tokens, limit, stats)
        stats.decode_seconds += seconds
        delta = text.finish() if reason else text.take()
        if delta:
            yield delta._replace(tokens=stats.tokens, seconds=stats.decode_seconds)
        if reason:
            yield Finished(reason, stats)
            return
        if is_cancelled():
            raise Cancelled
        if not delta:
            yield Tick()
        for _, seconds in timed(session.read() if session is not None else iter(())):
            stats.decode_seconds += seconds
            if is_cancelled():
                raise Cancelled
            yield Tick()


def _feed(
    step: Pass, text: TextStream, end_tokens: frozenset[int], limit: int, stats: GenerationStats
) -> str | None:
    """Feed one pass's tokens to the text; return why the answer ends here, or None.

    Tokens after the end are not counted: how far a draft ran past it must not show.
    """
    stats.passes += 1
    main = main_length(step.draft)
    for node in step.verified:
        stats.drafted += 1
        _count(stats.drafted_by_origin, _origin(step.draft, node, main))
    reason = None
    for index, token in enumerate(step.tokens):
        stats.tokens += 1
        margin = step.margins[index]
        if stats.smallest_margin is None or margin < stats.smallest_margin:
            stats.smallest_margin = margin
        node = step.path[index] if index < len(step.path) else None
        # What the draft says of its source is true of its main chain only.
        on_main = node is not None and node < main
        if node is not None:
            stats.accepted += 1
            origin = _origin(step.draft, node, main)
            _count(stats.accepted_by_origin, origin)
            # The small model's tokens stand behind a copy, and are none.
            on_main = on_main and origin == step.draft.origin
        if token in end_tokens:
            return "stop"
        copied = on_main and step.draft.source_index is not None
        text.feed(token, (step.draft.source_index or 0) + index if copied else None)
        if text.stopped:
            return "stop"
        if stats.tokens >= limit:
            return "length"
    return reason


def _origin(draft: Draft, node: int, main: int) -> str:
    """Return who drafted a token, as it is counted: a small model, or which part of a draft."""
    if draft.origins and draft.origins[node] == MODEL:
        return MODEL
    return draft.origin if node < main else BRANCH


def _count(counts: dict[str, int], origin: str) -> None:
    counts[origin] = counts.get(origin, 0) + 1
