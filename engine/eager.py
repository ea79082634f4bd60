"""Plain transformers forward passes: any device, any dtype, the reference."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, DynamicLayer

from engine import layers
from engine.attention import row_invariant_attention
from engine.kv_cache import KVCache, SlotLayer
from engine.probe import LayerProbe, PassProbe
from engine.tree import Tree, tree_of

ROW_INVARIANT = "redraft_row_invariant"

AttentionInterface.register(ROW_INVARIANT, row_invariant_attention)
# Each row's limit follows from its place, so no mask has to be made.
AttentionMaskInterface.register(ROW_INVARIANT, lambda *args, **kwargs: None)

PADDING = 0
"""Token id of the rows that fill a pass up; what they write is rolled back unread."""


class EagerLayer(SlotLayer, DynamicLayer):
    """One layer of our cache, which makes masks as transformers' layers do."""

    def get_seq_length(self) -> int:
        """Tokens held."""
        return self.length


class EagerCache(KVCache, Cache):
    """Our cache as one that transformers' models take."""

    layer_type = EagerLayer


class EagerRunner:
    """Runs a transformers causal LM with ordinary attention.

    Matrix products choose their order of summing by the number of rows, so an exact pass
    always has `exact_rows` rows, filled up where there are fewer; attention takes each
    row in the same way by itself (engine/attention.py). Models whose attention that
    module does not know are run as transformers runs them, and are not exact.

    Args:
        model: a transformers causal LM.
        max_context: most tokens that a sequence can hold.
        exact_rows: rows of an exact pass.
        notice: a sentence for people, or "".
    """

    name = "eager"

    def __init__(
        self, model: Any, max_context: int, exact_rows: int | None = None, notice: str = ""
    ) -> None:
        self._model = model.eval()
        self._device = layers.usable_device(next(model.parameters()))
        on_cpu = self._device.type == "cpu"
        self.device = str(self._device)
        self.dtype = str(model.dtype).removeprefix("torch.")
        self.max_context = max_context
        linears = (m for m in model.modules() if isinstance(m, torch.nn.Linear))
        self.weight_bytes = sum(m.weight.nbytes for m in linears)
        self.vocabulary = model.config.get_text_config().vocab_size
        self.notice = notice
        self.exact = self.trees = layers.has_common_shape(model.config)
        # On a CPU every row of a pass costs time; a GPU reads the weights once for many.
        self._exact_rows = exact_rows or (8 if on_cpu else 32)
        self.prefill_chunk = 64 if on_cpu else 512
        self.max_draft = self._exact_rows - 1 if self.exact else (16 if on_cpu else 64)
        self._cache_argument = cache_argument(model)
        self._usual_attention = model.config._attn_implementation
        self._layers = model.config.get_text_config().num_hidden_layers

    def new_cache(self, capacity: int, exact: bool = True) -> KVCache:
        """Return an empty cache with room for `capacity` tokens."""
        grid = self.prefill_chunk if exact else 1
        return EagerCache(self._layers, capacity, exact and self.exact, grid)

    def prefill(self, cache: KVCache, tokens: Sequence[int]) -> Iterator[float]:
        """Append `tokens` in chunks that end on multiples of `prefill_chunk`."""
        if self.exact:
            yield from layers.prefill(
                self._model, cache, tokens, self.prefill_chunk, self._run_layer
            )
            return
        done = 0
        for chunk in layers.chunks(tokens, cache.length, self.prefill_chunk):
            self._forward(cache, chunk, logits_to_keep=1)
            done += len(chunk)
            yield done

    def verify(
        self, cache: KVCache, tokens: Sequence[int], parents: Sequence[int] = ()
    ) -> torch.Tensor:
        """Append `tokens`; return one row of logits for each."""
        tree = tree_of(parents)
        if not cache.exact:
            return self._forward(cache, tokens, 0, tree)
        if tree is not None:
            return self._exact_pass(cache, tokens, tree)
        parts = [
            self._exact_pass(cache, tokens[i : i + self._exact_rows])
            for i in range(0, len(tokens), self._exact_rows)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @torch.inference_mode()
    def _exact_pass(
        self, cache: KVCache, tokens: Sequence[int], tree: Tree | None = None
    ) -> torch.Tensor:
        filling = self._exact_rows - len(tokens)
        if filling < 0:
            raise ValueError(f"a tree of {len(tokens)} rows, where {self._exact_rows} is the most")
        run_layer = self._run_layer
        if tree is not None:
            tree = tree.widened(self._exact_rows)
            run_layer = partial(run_layer, tree=tree)
        filled = [*tokens, *[PADDING] * filling]
        hidden = layers.last_hidden_states(self._model, cache, filled, run_layer, tree)
        cache.rollback(filling)
        return self._head(hidden)[: len(tokens)]

    def probe(self) -> Callable[[int, int], float]:
        """Return what times a pass."""
        if not self.exact:
            return PassProbe(self.verify, self.new_cache)
        return LayerProbe(
            self._model, self._run_layer, self._head, self.new_cache, lambda _: self._exact_rows
        )

    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._model.lm_head(self._model.model.norm(hidden))[0]

    def _run_layer(
        self,
        layer: Any,
        hidden: torch.Tensor,
        rotation: layers.Rotation,
        cache: KVCache,
        tree: Tree | None = None,
    ) -> torch.Tensor:
        self._model.config._attn_implementation = ROW_INVARIANT
        return layer(
            hidden,
            attention_mask=None,
            position_embeddings=rotation,
            use_cache=True,
            tree=tree,
            **{self._cache_argument: cache},
        )

    @torch.inference_mode()
    def _forward(
        self,
        cache: KVCache,
        tokens: Sequence[int],
        logits_to_keep: int,
        tree: Tree | None = None,
    ) -> torch.Tensor:
        self._model.config._attn_implementation = self._usual_attention
        ids = torch.tensor([list(tokens)], device=self._device)
        positions = layers.positions_of(len(tokens), cache.length, tree).to(ids.device)
        output = self._model(
            input_ids=ids,
            position_ids=positions[None],
            attention_mask=None if tree is None else self._mask(cache.length, tree),
            use_cache=True,
            logits_to_keep=logits_to_keep,
            **{self._cache_argument: cache},
        )
        cache.tokens.extend(tokens)
        return output.logits[0]

    def _mask(self, before: int, tree: Tree) -> torch.Tensor:
        """Return what is added to the scores, so that each row of a tree sees its path only.

        `[1, 1, rows, before + rows]`, as transformers' models take it.
        """
        paths = tree.paths
        seen = torch.zeros(len(paths), before + len(paths), dtype=torch.bool)
        seen[:, :before] = True
        for row, path in enumerate(paths):
            seen[row, [before + place for place in path]] = True
        mask = torch.zeros(seen.shape, dtype=self._model.dtype)
        mask = mask.masked_fill(~seen, torch.finfo(mask.dtype).min)
        return mask[None, None].to(self._device)


def cache_argument(model: Any) -> str:
    """Return the name under which a transformers model takes its cache."""
    # transformers renamed the argument in 5.2x; the old name will go.
    accepted = inspect.signature(model.forward).parameters
    return "cache" if "cache" in accepted else "past_key_values"
