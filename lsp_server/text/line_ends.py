"""Line ends: which one a text uses, and texts with another one."""

from __future__ import annotations

from lsp_server.text.positions import LINE_END


def dominant_line_end(text: str) -> str:
    r"""Return the most frequent of `\n`, `\r\n`, `\r`; the first seen of equals; `\n` for none."""
    windows = text.count("\r\n")
    counts = {
        "\n": text.count("\n") - windows,
        "\r\n": windows,
        "\r": text.count("\r") - windows,
    }
    most = max(counts.values())
    if most == 0:
        return "\n"
    leaders = {line_end for line_end, count in counts.items() if count == most}
    if len(leaders) == 1:
        return leaders.pop()
    return next(m.group() for m in LINE_END.finditer(text) if m.group() in leaders)


def to_lf(text: str) -> str:
    r"""Return the text with every line end as `\n`, as the model reads and writes it."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def with_line_end(text_lf: str, eol: str) -> str:
    """Return the text with every line end as `eol`."""
    text_lf = to_lf(text_lf)
    return text_lf if eol == "\n" else text_lf.replace("\n", eol)
