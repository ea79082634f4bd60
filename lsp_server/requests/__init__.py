"""One file for each request that the server answers."""
