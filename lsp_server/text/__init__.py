"""Text logic: positions, changes, hunks, answers. Pure: no I/O, no LSP types.

Every function here takes any string. Offsets are indices into a Python string; columns in an
encoding's units exist only in `positions`. The model writes line feeds; a document has its own
line ends, and `hunks` is where the two meet.
"""
