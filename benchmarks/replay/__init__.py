"""Replay: how few passes a drafter needs, without a model (see __main__)."""
