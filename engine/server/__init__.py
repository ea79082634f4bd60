"""The engine's outer half: HTTP, the worker thread, and the life of the process."""
