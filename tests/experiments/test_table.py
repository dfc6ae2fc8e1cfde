"""The page of results shows the figures of the paper and of the records, and keeps what is hand-written."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from collect import write_record
from deeppruning.errors import InputError
from row_options import row_files
from table import END, PAGE, START, kept_reading, page_text, read_paper, read_records, write_page

TRAINED = {"epochs": 10, "test_error": 0.0789, "seconds": 4200.0, "untrained_error": 0.1019}
SCRATCH = {"epochs": 10, "test_error": 0.1503, "seconds": 4000.0, "options": {"from_scratch": True}}


def network(*roles: str, id_: int = 7, **figures: Any) -> dict[str, Any]:
    """A network of a record, untrained unless told otherwise."""
    usual = {"epochs": 0, "test_error": 0.1019, "untrained_error": 0.1019, "seconds": 0.0}
    costs = {"flops_left": 40.25, "params_left": 60.5, "latency_ms": 11.84}
    named = {"roles": list(roles), "candidate": id_, "training": f"candidate-{id_}"}
    return {**named, **usual, **costs, **figures}


def search(*networks: dict[str, Any], model: str = "resnet56", **options: Any) -> dict[str, Any]:
    """A run of a record."""
    settings = {"strategy": "guided", "selection": "plus", **options}
    return {
        "kind": "search",
        "run": "mine",
        "command": f"deeppruning prune {model}",
        "seed": 4,
        "options": {"search": settings, "model": {"spec": model}, "data": {"data": "cifar10"}},
        "original": {"test_error": 0.0661, "latency_ms": 17.71},
        "networks": list(networks),
        "search_seconds": 1075.0,
        "columns": ["id", "generation", "flops", "error"],
        "candidates": [[0, 1, 1000, 0.0], [7, 1, 403, 0.1], [8, 2, 300, 0.2]],
        "front": [8, 7],
    }


OURS = {
    ("vgg16", "cifar10"),
    ("resnet56", "cifar10"),
    ("densenet100", "cifar10"),
    ("densenet100", "cifar100"),
}  # of the paper's networks


def record(row: str, *runs: dict[str, Any]) -> dict[str, Any]:
    return {"format": 1, "row": row, "runs": list(runs)}


def rows(text: str, *starts: str) -> list[list[str]]:
    """The cells of the lines of the page that begin with these."""
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [line for line in cells if tuple(line[: len(starts)]) == starts]


def test_without_records_all_of_ours_is_not_run_yet() -> None:
    paper = read_paper()
    text = page_text(paper, [], "")
    assert len(paper["network"]) == 12 and len(rows(text)) == 3 * 2 + 12 * 4 + 1 + 3 + 3 + 7
    for one in paper["network"]:
        shown = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}[one["data"]]
        lines = {line[2]: line for line in rows(text, one["name"], shown) if line[3] == "the paper"}
        for pick in ("knee", "heavy", "light"):
            figures = [f"{one[pick][key]:.2f} %" for key in ("error", "cut")]
            assert lines[pick][4:6] == figures and lines[pick][8] == str(one["epochs"])
        waiting = [line[4] for line in rows(text, one["name"], shown, "all")]
        assert waiting == ["not run yet"] * ((one["model"], one["data"]) in OURS)
    assert all(f"(../../experiments/{path.name})" in text for path in row_files())


def test_a_record_takes_the_place_of_what_was_not_run() -> None:
    knee = (network("knee"), network("knee", **TRAINED), network("knee", **SCRATCH))
    text = page_text(read_paper(), [record("resnet56-cifar10", search(network("heavy", id_=3), *knee))], "")
    ours = {line[2]: line[3:] for line in rows(text, "ResNet56", "CIFAR-10") if line[3] != "the paper"}
    assert ours.keys() == {"original", "heavy (3)", "knee (7)", "knee, weights re-drawn (7)"}
    costs = ["59.75 %", "39.50 %", "11.8 ms"]
    error, time = "7.89 % (10.19 % untrained)", "17 min 55 s + 1 h 10 min"
    last = "[record](../../experiments/records/resnet56-cifar10.json), [command](#resnet56-cifar10)"
    assert ours["knee (7)"] == ["ours, guided", error, *costs, "10", time, "4", last]
    assert ours["heavy (3)"][1:6] == ["10.19 %", *costs, "0"]
    assert ours["knee, weights re-drawn (7)"][1] == "15.03 %"
    assert ours["original"][1] == "6.61 %"


def test_the_paper_s_own_search_is_told_apart() -> None:
    comma = search(network("knee"), model="resnet20", strategy="paper", selection="comma")
    text = page_text(read_paper(), [record("resnet20-paper-comma", comma)], "")
    lines = rows(text, "ResNet20", "CIFAR-10")
    assert [(line[3], line[4]) for line in lines] == [
        ("ours, `--preset paper`, comma", "6.61 %"),
        ("ours, `--preset paper`, comma", "10.19 %"),
        ("ours, guided", "not run yet"),
        ("ours, `--preset paper`, plus", "not run yet"),
    ]


def training(model: str, **sizes: int) -> dict[str, Any]:
    """A training in stages: epochs by the name of the folder, which ends in the side of the images."""
    stages = [
        {
            "command": f"deeppruning train {model} --out runs/{name}",
            "options": {"image_shape": [3, int(name[-2:]), int(name[-2:])]},
            "epochs": epochs,
        }
        for name, epochs in sizes.items()
    ]
    costs = {"flops": 88_000_000, "params": 2_236_682, "latency_ms": 7.25}
    whole = {"epochs": sum(sizes.values()), "test_error": 0.25, "seconds": 60.0, "seed": 3}
    return {"kind": "training", "model": model, "data": "cifar10", "stages": stages, **costs, **whole}


def test_a_mobile_network_stands_below_the_paper_s_and_above_our_knees() -> None:
    mobile = record("mobile", training("squeezenet", net32=6), training("mobilenet_v2", a16=4, b32=2))
    costs = {"flops": 51_000_000, "params": 508_000}
    knee = record("resnet56-cifar10", search(network("knee", **TRAINED, **costs), network("heavy", **costs)))
    text = page_text(read_paper(), [mobile, knee], "").partition("## Trained from scratch")[2]
    source = "[record](../../experiments/records/mobile.json), [command](#mobile)"
    figures = ["25.00 %", "88.00 M", "2.24 M", "7.2 ms"]
    ours = ["CIFAR-10", "ours, from scratch", *figures, "6", "1 min 00 s", "3", source]
    assert rows(text, "SqueezeNet")[1:] == [["SqueezeNet", *ours]]
    assert rows(text, "MobileNet v2")[1][7] == "6: 4 at 16 pixels, 2 at 32 pixels"
    assert rows(text, "EfficientNet-B0")[1][2:4] == ["ours, from scratch", "not run yet"]
    (beside,) = rows(text, "ResNet56", "CIFAR-10", "ours, the knee (7)")
    assert beside[3:8] == ["7.89 %", "51.00 M", "0.51 M", "11.8 ms", "10"]
    assert [name in text for name in ("runs/net32\n", "runs/a16\n", "runs/b32\n")] == [True] * 3


def test_knees_stand_beside_what_learnt_from_the_same_images_only() -> None:
    text = page_text(read_paper(), [record("resnet56-cifar10", search(network("knee")))], "")
    assert rows(text.partition("## Trained from scratch")[2], "ResNet56", "CIFAR-10") == []


def test_what_is_written_by_hand_survives(tmp_path: Path) -> None:
    page = tmp_path / "paper.md"
    write_page([], page)
    before = page.read_text()
    hand = "**Ours is ahead** | and\n\n- by this much."
    page.write_text(re.sub(f"(?s){START}.*{END}", f"{START}\n{hand}\n{END}", before))
    write_record(record("resnet56-cifar10", search(network("knee")), search(network("knee"))), tmp_path)
    pages = [write_page(read_records(tmp_path), page), page.read_text()]
    assert hand in page.read_text() and before.count(START) == page.read_text().count(START) == 1
    plots = [tmp_path / f"paper-resnet56-cifar10{end}.svg" for end in ("", "-2")]
    assert pages == [[page, *plots], page.read_text()]
    assert all('id="candidates"' in plot.read_text() for plot in plots)
    assert all(f"]({plot.name})" in page.read_text() for plot in plots)
    write_page([], page)  # a record that is gone takes its plots along
    assert hand in page.read_text() and not any(plot.exists() for plot in plots)


def test_the_page_in_the_repository_is_that_of_its_records() -> None:
    assert page_text(read_paper(), read_records(), kept_reading(PAGE)) == PAGE.read_text()


def test_a_page_without_its_marks_is_not_written_over(tmp_path: Path) -> None:
    page = tmp_path / "paper.md"
    page.write_text("all by hand")
    with pytest.raises(InputError, match="put them back"):
        write_page([], page)
    assert page.read_text() == "all by hand"


def test_a_file_that_is_no_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(InputError, match="no record of format 1"):
        read_records(tmp_path)
