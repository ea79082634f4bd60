"""What a request may say about how tokens are chosen."""

from __future__ import annotations

from dataclasses import dataclass

from engine.core import EngineError, GenerationRequest

COUPLED, REJECTION = "coupled", "rejection"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen.

    Attributes:
        temperature: 0 is greedy.
        top_p: share of probability kept, 1 keeps all.
        seed: keys the noise together with the position.
        top_k: how many tokens are kept, 0 keeps all.
        min_p: tokens less probable than this share of the most probable one are dropped.
        repetition_penalty: divides the positive logits of tokens seen before, multiplies
            the negative ones; 1 is none.
        logit_bias: `(token id, added to its logit)`.
        banned: token ids that are never chosen.
        rule: `coupled` or `rejection` (engine/sampling/accept.py).
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    banned: frozenset[int] = frozenset()
    rule: str = COUPLED

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is taken, without noise."""
        return self.temperature <= 0.0

    @property
    def changes_logits(self) -> bool:
        """Whether logits are changed before the choice, besides by the temperature."""
        return bool(self.repetition_penalty != 1.0 or self.logit_bias or self.banned)


def sampling_of(request: GenerationRequest, vocabulary: int) -> Sampling:
    """Return what `request` says, checked against a vocabulary of that many tokens.

    Raises:
        EngineError: `invalid_request`, a token id is outside the vocabulary or all are banned.
    """
    ids = [*(token for token, _ in request.logit_bias), *request.banned_tokens]
    for token in ids:
        if not 0 <= token < vocabulary:
            raise EngineError(
                "invalid_request",
                f"Token {token} of logit_bias or banned_tokens does not exist: this model's "
                f"tokens are 0 to {vocabulary - 1}.",
            )
    if len(request.banned_tokens) >= vocabulary:
        raise EngineError("invalid_request", "banned_tokens leaves no token to choose.")
    return Sampling(
        temperature=request.temperature,
        top_p=request.top_p,
        seed=request.seed,
        top_k=request.top_k,
        min_p=request.min_p,
        repetition_penalty=request.repetition_penalty,
        logit_bias=request.logit_bias,
        banned=request.banned_tokens,
        rule=request.acceptance,
    )
