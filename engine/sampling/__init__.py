"""How the target's tokens are chosen from its logits, and which drafted ones are accepted."""

from engine.sampling.accept import Verdict, accept
from engine.sampling.masks import log_probabilities, processed
from engine.sampling.settings import Sampling

__all__ = ["Sampling", "Verdict", "accept", "log_probabilities", "processed"]
