from __future__ import annotations

from engine.threads import limit_spinning

# Before any test imports torch.
limit_spinning()
