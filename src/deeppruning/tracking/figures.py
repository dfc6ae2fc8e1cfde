"""Figures of a search so far: its hypervolume, its front, the best error within each share of the FLOPs."""

import io
from collections.abc import Sequence

from deeppruning.comparison.results import hypervolume
from deeppruning.runs.records import Candidate
from deeppruning.system.commands import has_extra

SHARES = tuple(range(10, 100, 10))  # percent of the original's FLOPs


class SearchFigures:
    """Collects the candidates of a search."""

    def __init__(self, original_flops: int) -> None:
        self.original_flops = original_flops
        self.points: dict[int, tuple[float, float]] = {}  # by candidate: error and share of the FLOPs

    def add(self, candidate: Candidate) -> None:
        """Take in a candidate that was evaluated; one that diverged or failed has no figures."""
        if candidate.train_error is not None and self.original_flops:
            self.points[candidate.id] = candidate.train_error, candidate.flops / self.original_flops

    def metrics(self, picks: Sequence[tuple[str, Candidate]]) -> dict[str, float]:
        """The metrics of a generation.

        For example: `search/best_error/flops_40_percent` is the lowest error of all candidates so far with
        at most 40 % of the original's FLOPs. It is absent until there is one.
        """
        metrics = {
            "search/hypervolume": hypervolume(self.points.values()),
            "search/evaluated": float(len(self.points)),
        }
        for percent in SHARES:
            errors = [error for error, share in self.points.values() if share <= percent / 100]
            if errors:
                metrics[f"search/best_error/flops_{percent}_percent"] = min(errors)
        for role, pick in picks:
            if pick.train_error is not None:
                metrics[f"search/{role}/error"] = pick.train_error
                metrics[f"search/{role}/flops_pruned"] = 1.0 - pick.flops / self.original_flops
        return metrics

    def front(self) -> list[tuple[float, float]]:
        """The candidates that no other one is better than in both, by rising share of the FLOPs."""
        best: list[tuple[float, float]] = []
        for error, share in sorted(self.points.values(), key=lambda point: (point[1], point[0])):
            if not best or error < best[-1][0]:
                best.append((error, share))
        return best

    def plot(self) -> bytes | None:
        """All candidates and their front as PNG; None without matplotlib."""
        if not has_extra("plots") or not self.points:
            return None
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.0, 4.5), dpi=100, layout="constrained")
        axes = figure.subplots()
        errors, shares = zip(*self.points.values(), strict=True)
        axes.scatter([100 * share for share in shares], errors, s=14, color="#b8bec6", label="candidates")
        front = self.front()
        axes.step(
            [100 * share for _, share in front],
            [error for error, _ in front],
            where="post", marker="o", markersize=4, color="#3f51b5", label="front",
        )  # fmt: skip
        axes.set_xlabel("FLOPs, % of the original's")
        axes.set_ylabel("error in the search")
        axes.grid(color="#eceef0")
        axes.legend(frameon=False)
        content = io.BytesIO()
        figure.savefig(content, format="png")
        return content.getvalue()
