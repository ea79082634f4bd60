"""Timed and counted comparisons; never part of `make test`."""
