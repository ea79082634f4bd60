"""The CUDA-graph runner: a ladder of captured passes over one static KV cache.

Between two passes the host does next to nothing: one copy in, one replay, one copy out.
An exact pass always has `EXACT_ROWS` rows, filled up where there are fewer, so plain
decoding runs the very kernels that verify a draft; without that promise the shortest pass
of the ladder that fits is taken. Not run on a GPU yet: benchmarks/device/gpu.sh is what to
run on one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from transformers import AttentionInterface

from engine import layers
from engine.cuda.attention import BATCH, BLOCK, static_attention
from engine.cuda.passes import Capture, Slots, StaticPass
from engine.cuda.views import Views, kinds_of
from engine.cuda.workspace import SequenceCache, Workspace
from engine.eager import cache_argument
from engine.kv_cache import KVCache
from engine.probe import PassProbe
from engine.sampling.accept import Verdict
from engine.tree import Tree, tree_of

STATIC = "redraft_static"

AttentionInterface.register(STATIC, static_attention)

EXACT_ROWS = 32
LADDER = (1, 2, 4, 8, 16, 32, 64, 128)
PREFILL_LADDER = (32, 256)
"""Rows of a prefill chunk, filled up; the larger is the chunk."""

SHORTEST_CONTEXT = BATCH * BLOCK

MEMORY_SHARE = 0.25
"""Of the memory that is free after the weights are loaded, for the workspace."""


COMPILED = "Its passes are compiled, so a draft may change a token."


def can_run(model: Any) -> bool:
    """Return whether a loaded model can be run by this runner: its shape, all on one GPU."""
    devices = {parameter.device for parameter in model.parameters()}
    on_one_gpu = len(devices) == 1 and devices.pop().type == "cuda"
    return on_one_gpu and layers.has_common_shape(model.config)


class CudaGraphRunner:
    """Runs a transformers model of the common shape by replaying captured passes.

    Args:
        model: a transformers causal LM on one device.
        max_context: most tokens that a sequence can hold; less where memory is short.
        exact_rows: rows of an exact pass.
        capture: makes a pass repeatable; by default a CUDA graph on a GPU, and on another
            device nothing, so that the same code runs there.
        compile: let torch.compile fuse the layers before they are captured. It may sum in
            another order on another rung, so nothing is exact then.
        notice: a sentence for people, or "".
    """

    name = "cuda-graphs"
    trees = True
    prefill_chunk = PREFILL_LADDER[-1]

    def __init__(
        self,
        model: Any,
        max_context: int,
        exact_rows: int = EXACT_ROWS,
        capture: Capture | None = None,
        compile: bool = False,
        notice: str = "",
    ) -> None:
        config = model.config.get_text_config()
        self._model = model.eval()
        self._device = next(model.parameters()).device
        self.device = str(self._device)
        self.dtype = str(model.dtype).removeprefix("torch.")
        linears = (m for m in model.modules() if isinstance(m, torch.nn.Linear))
        self.weight_bytes = sum(m.weight.nbytes for m in linears)
        self.vocabulary = config.vocab_size
        self.exact = not compile
        self.notice = f"{notice} {COMPILED}".lstrip() if compile else notice
        self.max_draft = (exact_rows if self.exact else LADDER[-1]) - 1
        self._exact_rows = exact_rows
        model.config._attn_implementation = STATIC
        size = getattr(config, "head_dim", None) or (
            config.hidden_size // config.num_attention_heads
        )
        longest = max(*LADDER, *PREFILL_LADDER, exact_rows)
        heads = config.num_key_value_heads
        token_bytes = 2 * config.num_hidden_layers * heads * size * model.dtype.itemsize
        affordable = min(max_context, _affordable_tokens(self._device, token_bytes))
        slots = -(-(affordable + longest) // BLOCK) * BLOCK
        self._workspace = Workspace(
            config.num_hidden_layers, heads, slots, size, model.dtype, self._device
        )
        self.max_context = min(max_context, self._workspace.slots - longest)
        self._capture = capture or (CudaCapture() if self._device.type == "cuda" else repeated)
        self._cache_argument = cache_argument(model)
        self._run = torch.compile(self._run_layer) if compile else self._run_layer
        self._passes: dict[tuple[int, int, int], StaticPass] = {}
        self._chunks: dict[tuple[int, int, int], StaticPass] = {}

    def new_cache(self, capacity: int, exact: bool = True) -> SequenceCache:
        """Return an empty sequence."""
        exact = exact and self.exact
        return SequenceCache(self._workspace, exact, self.prefill_chunk if exact else 1)

    def prefill(self, cache: KVCache, tokens: Sequence[int]) -> Iterator[float]:
        """Append `tokens` in chunks that end on multiples of `prefill_chunk`."""
        done = 0
        for chunk in layers.chunks(tokens, cache.length, self.prefill_chunk):
            rows = next(rung for rung in PREFILL_LADDER if rung >= len(chunk))
            self._pass_for(cache, rows, is_chunk=True).read(cache.length, chunk)
            cache.tokens.extend(chunk)
            done += len(chunk)
            yield done

    def verify(
        self, cache: KVCache, tokens: Sequence[int], parents: Sequence[int] = ()
    ) -> torch.Tensor:
        """Append `tokens`; return one row of logits for each."""
        longest = self._exact_rows if cache.exact else LADDER[-1]
        tree = tree_of(parents)
        if tree is not None:
            if len(tokens) > longest:
                raise ValueError(f"a tree of {len(tokens)} rows, where {longest} is the most")
            logits = self._window(cache, len(tokens), tree).run(cache.length, tokens, tree)
            cache.tokens.extend(tokens)
            return logits
        parts = []
        for first in range(0, len(tokens), longest):
            part = tokens[first : first + longest]
            parts.append(self._window(cache, len(part)).run(cache.length, part))
            cache.tokens.extend(part)
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def verify_greedy(
        self, cache: KVCache, tokens: Sequence[int], parents: Sequence[int] = ()
    ) -> Verdict:
        """Append the last token and a draft; accept greedily on the device.

        The caller rolls back what was refused, as after `verify`.
        """
        tree = tree_of(parents)
        one = self._window(cache, len(tokens), tree)
        verdict = one.run_greedy(cache.length, tokens, tree, parents)
        cache.tokens.extend(tokens)
        return verdict

    def probe(self) -> Callable[[int, int], float]:
        """Return what times a pass: the second of two, since the first may be captured."""
        timed = PassProbe(self.verify, self.new_cache)

        def seconds(window: int, context: int) -> float:
            timed(window, context)
            return timed(window, context)

        return seconds

    def _run_layer(
        self,
        layer: Any,
        hidden: torch.Tensor,
        rotation: layers.Rotation,
        slots: Slots,
        sees: torch.Tensor,
        views: Views | None = None,
    ) -> torch.Tensor:
        return layer(
            hidden,
            attention_mask=sees,
            views=views,
            position_embeddings=rotation,
            use_cache=True,
            **{self._cache_argument: slots},
        )

    def _window(self, cache: KVCache, rows: int, tree: Tree | None = None) -> StaticPass:
        rows = self._exact_rows if cache.exact else next(r for r in LADDER if r >= rows)
        return self._pass_for(cache, rows, 0 if tree is None else kinds_of(tree, rows))

    def _pass_for(
        self, cache: KVCache, rows: int, views: int = 0, is_chunk: bool = False
    ) -> StaticPass:
        """Return the pass over enough slots, the sequence in its place."""
        assert isinstance(cache, SequenceCache)
        self._workspace.bring_in(cache)
        shape = rows, min(_rung(cache.length + rows), self._workspace.slots), views
        passes = self._chunks if is_chunk else self._passes
        if shape not in passes:
            made = self._run, self._capture, views, not is_chunk
            passes[shape] = StaticPass(self._model, self._workspace, *shape[:2], *made)
        return passes[shape]


class CudaCapture:
    """Captures work as a CUDA graph; all graphs share one pool of memory."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
        """Warm up on a side stream, as capturing demands, then record."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile, which must not end the capture.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            work()
        return graph.replay


def repeated(work: Callable[[], None]) -> Callable[[], None]:
    """Capture nothing: run the work itself each time."""
    return work


def _rung(tokens: int) -> int:
    """Return the shortest context of the ladder with room for `tokens`."""
    rung = SHORTEST_CONTEXT
    while rung < tokens:
        rung *= 2
    return rung


def _affordable_tokens(device: torch.device, token_bytes: int) -> int:
    if device.type != "cuda":
        return 1 << 30
    free, _ = torch.cuda.mem_get_info(device)
    return max(int(free * MEMORY_SHARE) // token_bytes, SHORTEST_CONTEXT)
