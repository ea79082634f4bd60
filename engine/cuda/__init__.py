"""Passes as CUDA graphs: everything a pass needs is allocated once and replayed."""
