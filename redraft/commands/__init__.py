"""The subcommands of `redraft`, one module each, imported only when used."""
