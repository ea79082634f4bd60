"""Everything that proposes tokens. Plain Python and numpy; imports nothing of ours."""
