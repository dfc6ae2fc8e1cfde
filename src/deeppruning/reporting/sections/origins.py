"""Where candidates come from: how often each operator and each kind of seed brought one into the archive."""

from deeppruning.reporting.section import SECTIONS, Data, Section, Source, table

_LEAD = (
    "The archive keeps the best candidate of each bin of cost. Seeds are what the search starts from; every "
    "other candidate is made from one or two that were in the archive at the time."
)
_COLUMNS = ("origin", "tried", "entered", "share", "in it now")


def _collect(source: Source, data: Data) -> Data:
    if data["archive"] is None:
        return {}
    rows = [
        (
            row["name"],
            row["tried"],
            row["entered"],
            f"{100 * row['entered'] / row['tried']:.0f}\u00a0%",
            row["held"],
        )
        for row in data["archive"]["sources"]
    ]
    return table("Where candidates come from", _COLUMNS, rows, lead=_LEAD, folded=True)


SECTIONS.add(Section("origins", _collect), place=15)
