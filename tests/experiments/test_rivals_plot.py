"""The plot of the comparison shows what the table beside it says."""

from deeppruning.reporting.plots import rivals
from rivals_plot import PAGE, comparison


def test_it_draws_the_rows_of_the_table() -> None:
    data = comparison(PAGE.read_text(encoding="utf-8"))
    methods = {method["name"]: method for method in data["methods"]}
    assert len(methods) == 7
    assert [round(point["after"], 3) for point in methods["guided"]["points"]] == [0.105, 0.241, 0.389]
    assert [method["kind"] for method in methods.values()].count("criteria with refit") == 3
    figure = rivals({"rivals": data})
    assert figure is not None
    assert len(figure.axes[0].lines) == 1 + len(methods)  # the original's, too
