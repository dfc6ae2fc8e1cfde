"""The errors a user can meet: each message says what was given, what is wrong and what to do."""

import sysconfig
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

LONGEST_MESSAGE = 20_000  # characters: enough for a table of layers


class DeepPruningError(Exception):
    """Base of every error raised on purpose; the command line prints it without a traceback."""

    def __str__(self) -> str:
        """The message, shortened in the middle if it quotes a huge file."""
        text = super().__str__()
        half = LONGEST_MESSAGE // 2
        return text if len(text) <= LONGEST_MESSAGE else f"{text[:half]} ... {text[-half:]}"


class InputError(DeepPruningError, ValueError):
    """An argument, option or configuration value that cannot be used."""


class DataError(DeepPruningError):
    """A data set that is missing, damaged or not what its name promises."""


class WeightsError(DeepPruningError):
    """A weights file that cannot be read or does not belong to the network."""


class GraphError(DeepPruningError):
    """A network the channel graph cannot follow, or a cut that fails its proof."""


class RunError(DeepPruningError):
    """A run folder that is missing, in use, damaged or of another configuration."""


class Diverged(DeepPruningError):
    """Weights, outputs, a loss or an error that are infinite or not a number."""


# What values of the wrong type, shape or depth raise: for a reader of files, damage.
DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError)

_LONGEST_NAME = 80
_MOST_NAMES = 100  # above which an error lists a few; timm has more than a thousand
_PACKAGES = {"site-packages", "dist-packages"}  # of other environments too, which this one may look into
_NOT_THE_USERS = (
    Path(__file__).parent,
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")),
)


def describe_raised(error: BaseException) -> str:
    """An error raised by the user's code: its type, its message, and the file and line of that code."""
    place = f" ({where})" if (where := users_line(error)) else ""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {text}{place}"


def reason_of(error: BaseException) -> str:
    """The first line of what an error of another library says, to be quoted in one of ours."""
    return (str(error).strip().split("\n")[0] or type(error).__name__)[:300]


def users_line(error: BaseException) -> str:
    """The innermost line in a file of the user: neither in this package nor installed."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        installed = not _PACKAGES.isdisjoint(file.parts) or any(map(file.is_relative_to, _NOT_THE_USERS))
        if file.is_file() and not installed:
            return f"{file}, line {frame.lineno}"
    return ""


def unknown(kind: str, given: str, names: Iterable[str]) -> InputError:
    """The error for an unknown name, with the most similar known ones.

    >>> str(unknown("model", "resnet57", ["resnet56", "vgg16"]))
    "unknown model 'resnet57'; did you mean resnet56? Known: resnet56, vgg16"
    >>> str(unknown("number", "x", map(str, range(1000)))).partition("Known: ")[2]
    '0, 1, 10, 100, 101, 102, 103, 104, 105, 106 and 990 others'
    """
    allowed = sorted(names)
    if len(given) > _LONGEST_NAME:  # the time of matching is quadratic
        given = f"{given[:_LONGEST_NAME]}..."
    near = get_close_matches(given, allowed, n=3, cutoff=0.6)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    if len(allowed) > _MOST_NAMES:
        rest = f"{', '.join(allowed[: _MOST_NAMES // 10])} and {len(allowed) - _MOST_NAMES // 10:,} others"
        return InputError(f"unknown {kind} {given!r}{hint} Known: {rest}")
    return InputError(f"unknown {kind} {given!r}{hint} Known: {', '.join(allowed)}")
