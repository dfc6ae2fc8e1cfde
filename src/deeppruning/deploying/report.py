"""What became of a network that was deployed: what was folded, what was taken out, what had to stay."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Deployment:
    """Found on a deployed network as `network.deployment`; prints as lines for people.

    >>> print(Deployment({"bn": "conv"}, kept={"head.bn": "it reads no layer"}))
    1 batch norm folded, 0 no-ops removed, 0 stand-ins made constant
    batch norm head.bn stays: it reads no layer
    """

    folded: Mapping[str, str] = field(default_factory=dict)  # batch norm -> the layer that it went into
    removed: tuple[str, ...] = ()  # dropout and the like
    constant: tuple[str, ...] = ()  # stand-ins for lost layers that look at their input no more
    kept: Mapping[str, str] = field(default_factory=dict)  # batch norm -> why it is still there

    def __str__(self) -> str:
        plural = "norm" if len(self.folded) == 1 else "norms"
        lines = [
            f"{len(self.folded)} batch {plural} folded, {len(self.removed)} no-ops removed, "
            f"{len(self.constant)} stand-ins made constant",
            *(f"batch norm {name} stays: {reason}" for name, reason in self.kept.items()),
        ]
        return "\n".join(lines)
