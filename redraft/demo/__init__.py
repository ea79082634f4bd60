"""The demo: a headless editor and the real language server do one rewrite twice."""
