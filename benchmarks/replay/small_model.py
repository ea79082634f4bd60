"""A draft model in the replay: the only part of it that runs a real model.

How likely it is asked depends on what its passes cost beside the target's. In the replay
that is a given share (`--draft-cost`), so that the passes are the same on every machine: 0
counts what the small model can save at most, a share as measured what the engine would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.replay.items import BadInput, Item
from benchmarks.replay.measure import Result, replay
from drafters.gains import Costs, Gains
from drafters.model import Saying
from drafters.standard import standard
from engine.core import EngineError
from engine.draft_model import DraftSession, GreedyDraftModel
from engine.loader import load_model
from engine.store import resolve

ROW_SHARE = 0.05
"""What a further row adds to a pass of the small model, as a share of that pass."""


@dataclass(slots=True)
class PricedModel:
    """One answer's session with a given price; it reads the prompt when first asked."""

    session: DraftSession
    share: float
    gains: Gains

    def costs(self, context: Sequence[int]) -> Costs:
        """Return the given share; reading the prompt is counted apart."""
        return Costs(1.0, self.share, ROW_SHARE * self.share)

    def say(self, tokens: Sequence[int], rows: int) -> list[Saying]:
        """Return what the model says, after reading what it lacks."""
        said = self.session.say(tokens, rows)
        if not said:
            for _ in self.session.read():
                pass
            said = self.session.say(tokens, rows)
        return said


def load_draft_model(name: str) -> GreedyDraftModel:
    """Return a model of the store, or of a folder.

    Raises:
        BadInput: there is none, or it cannot draft.
    """
    try:
        folder = resolve(name, lambda progress: None, lambda: False)
        return GreedyDraftModel(load_model(name, folder, None, None))
    except (EngineError, OSError, ValueError) as error:
        raise BadInput(f"There is no draft model {name}: {error}") from error


def replay_with_model(
    model: GreedyDraftModel, items: Sequence[Item], window: int, share: float, trees: bool
) -> list[Result]:
    """Replay all items with the product's cascade of copies and a draft model.

    Args:
        model: with the tokenizer that the items were made with.
        items: to replay, in order: what was learnt of the model's use is kept.
        window: most drafted rows of a pass.
        share: of a target's pass that a pass of the model takes.
        trees: whether drafts may branch.
    """
    results = []
    for item in items:
        session = model.session()
        priced = PricedModel(session, share, model.gains)
        results.append(replay(standard(trees, priced), item, window))
        session.close()
    return results


def work_of(model: GreedyDraftModel) -> dict[str, float]:
    """Return what the model has done so far: passes, their rows and seconds; prompts read."""
    return {
        "passes": model.passes,
        "rows": model.rows,
        "seconds": model.seconds,
        "read_tokens": model.read_tokens,
        "read_seconds": model.read_seconds,
    }
