"""Counts, times, percentages, lists of names and tables, written for people."""

from collections.abc import Sequence

_UNITS = (("G", 1e9), ("M", 1e6), ("k", 1e3))


def amount(count: float, *, like: float | None = None) -> str:
    """A large count in the unit that suits it, or in that of another one it is compared with.

    >>> amount(25_504), amount(125_485_696), amount(885_140, like=2_520_000)
    ('25.50 k', '125.49 M', '0.89 M')
    """
    size = count if like is None else like
    for unit, least in _UNITS:
        if size >= least:
            return f"{count / least:.2f} {unit}"
    return f"{count:g}"


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> duration(42), duration(125), duration(7300)
    ('42 s', '2 min 05 s', '2 h 01 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def percent(share: float | None, digits: int = 2) -> str:
    """A share of 1 in percent; nothing where it is not known.

    >>> percent(0.0664), percent(0.5, 1), percent(None)
    ('6.64 %', '50.0 %', '')
    """
    return "" if share is None else f"{100 * share:.{digits}f} %"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of a table as lines, the first column to the left and the others to the right.

    >>> print(aligned([["network", "FLOPs"], ["thin", "1.20 M"]]))
    network   FLOPs
    thin     1.20 M
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *cells in rows:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *padded]))
    return "\n".join(lines)


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first names, and the number of the others.

    >>> listed(["conv1", "conv2", "conv3", "fc"])
    'conv1, conv2, conv3 and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
