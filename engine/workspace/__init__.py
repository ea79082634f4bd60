"""The user's open workspace: which of its files are read, and their indexes for the drafters."""
