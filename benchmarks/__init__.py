"""What is measured, and how; each benchmark is run by `python -m benchmarks.NAME`."""

from engine.threads import limit_spinning

# As the engine does, and before anything imports torch.
limit_spinning()
