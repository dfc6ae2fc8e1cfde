"""An ONNX file in, a thinner one out: the call, the command, and what is refused."""

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import deeppruning as dp
from deeppruning.cli.main import cli
from deeppruning.errors import DeepPruningError, InputError, RunError
from deeppruning.importing.file import FileValue
from deeppruning.reporting.data import collect
from deeppruning.thinning.inputs import PictureOptions, read_inputs

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from PIL import Image  # noqa: E402

from importing.onnx_files import answers, exported, varied  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
FEW = {"offspring": 4, "generations": 1, "round_to": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file, arrays and pictures for it."""
    folder = tmp_path_factory.mktemp("thin")
    exported(varied(), folder / "net.onnx")
    draw = np.random.default_rng(0)
    np.savez(folder / "ready.npz", images=draw.random((60, 3, 8, 8), np.float32))
    (folder / "photos" / "more").mkdir(parents=True)
    for place in range(45):
        pixels = draw.integers(0, 256, (10, 12, 3), np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / ("more" if place % 2 else ".") / f"{place}.png")
    return folder


@pytest.fixture(scope="module")
def thinned(folder: Path) -> "dp.thinning.Thinned":
    return dp.thin(
        folder / "net.onnx", folder / "ready.npz", target="flops=80%", out=folder / "thin.onnx",
        search=dp.SearchConfig(**FEW), run_dir=folder / "run", workers=1,
    )  # fmt: skip


def test_the_file_that_is_written_and_what_is_said_of_it(thinned, folder: Path) -> None:
    images = np.load(folder / "ready.npz")["images"]
    before, after = (answers(folder / name, images=images)[0] for name in ("net.onnx", "thin.onnx"))
    held = np.arange(60) % 5 == 4
    assert thinned.drift.inputs == held.sum()
    assert thinned.drift.answers == pytest.approx((before.argmax(1) != after.argmax(1))[held].mean())
    assert thinned.solution.flops_pruned >= 0.2
    assert thinned.bytes_after == (folder / "thin.onnx").stat().st_size < thinned.bytes_before
    assert thinned.latency.before > 0
    assert thinned.latency.low <= thinned.latency.ratio <= thinned.latency.high
    with torch.no_grad():
        outputs = thinned.solution.model(torch.from_numpy(images)).numpy()
    assert np.allclose(outputs, after, atol=1e-5)
    assert sum(point.chosen for point in thinned.front) <= 1
    assert thinned.page.is_file()
    assert "80%" in repr(thinned)
    assert json.loads(json.dumps(thinned.to_json()))["bytes"] == thinned.bytes_after


def test_another_target_is_taken_from_the_search_that_is_there(thinned, folder: Path) -> None:
    again = dp.thin(
        folder / "net.onnx", folder / "ready.npz", target={"params": 0.95}, out=folder / "again.onnx",
        run_dir=folder / "run", workers=1,
    )  # fmt: skip
    assert again.front == [
        type(one)(**{**vars(one), "chosen": one.candidate == again.solution.id}) for one in thinned.front
    ]
    with pytest.raises(RunError, match="offspring"):
        dp.thin(
            folder / "net.onnx", folder / "ready.npz", target="flops=80%", out=folder / "again.onnx",
            search=dp.SearchConfig(offspring=5), run_dir=folder / "run",
        )  # fmt: skip
    with pytest.raises(RunError, match="other inputs"):
        images = 2 * np.load(folder / "ready.npz")["images"]
        dp.thin(
            folder / "net.onnx", images, target="flops=80%", out=folder / "x.onnx", run_dir=folder / "run"
        )


def test_the_page_speaks_of_drift_and_not_of_training(thinned) -> None:
    data = collect(thinned.run_dir)
    assert data["by_drift"]
    assert data["commands"]["finetune"] == data["commands"]["resume"] == ""
    assert "from_onnx('net.onnx')" in data["commands"]["load"]["knee"]
    refused = CliRunner().invoke(cli, ["pick", str(thinned.run_dir), "--target", "flops=90%"])
    assert "was made by `deeppruning thin`" in str(refused.exception)


def test_the_command_thins_by_a_folder_of_pictures(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "thin.onnx"
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in FEW.items()]
    call = ["thin", str(folder / "net.onnx"), "--inputs", str(folder / "photos"), "--target", "flops=80%"]
    call += ["--out", str(out), "--run", str(tmp_path / "run"), "--workers", "1", "--colours", "bgr", *flags]
    result = CliRunner().invoke(cli, call)
    assert result.exit_code == 0, result.output
    assert "8x8, 3 channels, nchw" in result.output
    assert "of the original" in result.output
    assert (tmp_path / "run" / "report.html").is_file()
    assert answers(out, images=np.zeros((2, 3, 8, 8), np.float32))[0].shape == (2, 5)
    beside = CliRunner().invoke(
        cli, ["bench", str(folder / "net.onnx"), "--beside", str(out), "--batch", "1"]
    )
    assert "batch 1:" in beside.output, beside.output


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"target": "error=+1%"}, "no labels"),
        ({"target": "flops=0%"}, "above 0"),
        ({"target": "latency=0%"}, "above 0"),
        ({"target": "latency=50%,error=1%"}, "no labels"),
        ({"target": ""}, "flops"),
        ({"out": "thin.pt"}, "thin.pt"),
        ({"out": "net.onnx"}, "is the file that is read"),
        ({"path": "absent.onnx"}, "absent.onnx"),
        ({"inputs": "absent"}, "does not exist"),
        ({"inputs": "empty"}, "no pictures"),
        ({"inputs": "names.npz"}, "takes an array for each of its inputs"),
        ({"inputs": "few.npy"}, "33 inputs"),
        ({"inputs": "large.npy"}, "8x8"),
        ({"inputs": "broken.npz"}, "broken.npz"),
        ({"inputs": "nan.npy"}, "not finite"),
        ({"inputs": "text.npy"}, "must be numbers"),
        ({"search": dp.SearchConfig.paper()}, "labels"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(folder: Path, tmp_path: Path, change, said: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "net.onnx").write_bytes((folder / "net.onnx").read_bytes())
    np.savez(tmp_path / "names.npz", first=np.zeros((40, 3, 8, 8)), second=np.zeros((40, 3, 8, 8)))
    np.save(tmp_path / "few.npy", np.zeros((20, 3, 8, 8), np.float32))
    np.save(tmp_path / "large.npy", np.zeros((40, 3, 9, 9), np.float32))
    np.save(tmp_path / "nan.npy", np.full((40, 3, 8, 8), np.nan, np.float32))
    np.save(tmp_path / "text.npy", np.array(["a", "b"]))
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 not a file")
    call = {"path": "net.onnx", "inputs": "few.npy", "target": "flops=80%", "out": "thin.onnx", **change}
    path, inputs, out = (tmp_path / call.pop(name) for name in ("path", "inputs", "out"))
    with pytest.raises(DeepPruningError, match=said):
        dp.thin(path, str(inputs), out=out, run_dir=tmp_path / "run", **call)
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "thin.onnx").exists()


def test_inputs_of_a_function_and_of_python(folder: Path, tmp_path: Path) -> None:
    from deeppruning.importing.building import SUPPORTED
    from deeppruning.importing.file import read_onnx
    from deeppruning.thinning.inputs import PictureOptions, read_inputs

    wanted = read_onnx(folder / "net.onnx", SUPPORTED).inputs
    (tmp_path / "own.py").write_text("import numpy as np\ndef made(): return np.ones((40, 3, 8, 8))\n")
    for source in (
        f"{tmp_path / 'own.py'}:made",
        torch.ones(40, 3, 8, 8),
        {"images": np.ones((40, 3, 8, 8))},
    ):
        read = read_inputs(source, wanted, PictureOptions(), 30)
        assert {name: (tuple(one.shape), one.dtype) for name, one in read.items()} == {
            "images": ((30, 3, 8, 8), torch.float32)
        }
    with pytest.raises(InputError, match="pictures need 4"):
        from deeppruning.importing.file import FileValue
        from deeppruning.thinning.pictures import form_of

        form_of(FileValue("x", np.dtype(np.float32), (1, 8)), PictureOptions())


def test_pictures_become_the_numbers_that_are_asked_for(tmp_path: Path) -> None:
    from deeppruning.importing.file import FileValue
    from deeppruning.thinning.pictures import PictureOptions, read_pictures

    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[..., 0], pixels[..., 1], pixels[..., 2] = 10, 20, 30
    Image.fromarray(pixels).save(tmp_path / "one.png")

    def first(shape, kind=np.float32, **options):
        value = FileValue("x", np.dtype(kind), shape)
        return read_pictures(tmp_path, value, PictureOptions(**options), 5)

    plain = first((None, 3, 4, 4))
    assert plain.shape == (1, 3, 4, 4)
    assert torch.allclose(plain[0, :, 0, 0], torch.tensor([10.0, 20.0, 30.0]) / 255)
    last = first(("n", 4, 4, 3), scale=1.0, mean=(1.0, 2.0, 3.0), std=(2.0,), colours="bgr")
    assert last.shape == (1, 4, 4, 3)
    assert last[0, 0, 0].tolist() == [14.5, 9.0, 3.5]
    bytes_ = first((1, 3, None, None), np.uint8, image_size=(2, 6))
    assert bytes_.shape == (1, 3, 2, 6)
    assert (bytes_.dtype, bytes_[0, :, 0, 0].tolist()) == (torch.uint8, [10, 20, 30])
    assert first((1, 1, 4, 4)).shape == (1, 1, 4, 4)
    with pytest.raises(InputError, match="4x4, not 8x8"):
        first((1, 3, 4, 4), image_size=(8, 8))
    with pytest.raises(InputError, match="7 channels"):
        first((1, 7, 4, 4))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"colours": "cmyk"}, "cmyk.*bgr, rgb"),
        ({"layout": "hw"}, "hw.*nchw, nhwc"),
        ({"scale": 0}, "scale.*above 0.*got 0"),
        ({"scale": float("nan")}, "scale.*nan"),
        ({"std": (0.5, 0.0)}, r"std.*\(0.5, 0.0\)"),
        ({"mean": (float("inf"),)}, "mean.*inf"),
        ({"image_size": (0, 8)}, r"image_size.*at least 1.*\(0, 8\)"),
    ],
)
def test_picture_options_that_make_no_sense_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        dp.thinning.PictureOptions(**options)


def test_every_picture_option_is_a_flag_of_the_command() -> None:
    shown = CliRunner().invoke(cli, ["thin", "--help"]).output
    names = [field.name for field in fields(dp.thinning.PictureOptions)]
    assert len(names) == 6
    assert [name for name in names if f"--{name.replace('_', '-')}" not in shown] == []


@pytest.mark.slow
def test_tuning_is_planned_once_and_keeps_the_better_weights(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deeppruning.training.planning.FEWEST_STEPS", 1)  # however slow the machine is
    images = np.random.default_rng(1).random((120, 3, 8, 8), np.float32)

    def thin(name: str, **options: float) -> "dp.thinning.Thinned":
        return dp.thin(
            folder / "net.onnx", images, target="flops=80%", out=tmp_path / name, run_dir=tmp_path / "run",
            workers=1, **options,
        )  # fmt: skip

    plain = dp.thin(
        folder / "net.onnx", images, target="flops=80%", out=tmp_path / "plain.onnx",
        search=dp.SearchConfig(**FEW), run_dir=tmp_path / "run", workers=1,
    )  # fmt: skip
    tuned = thin("tuned.onnx", tune_minutes=0.05)
    (plan,) = (tmp_path / "run" / "finetune").glob("tune-*.plan.json")
    written = plan.read_text()
    again = thin("again.onnx", tune_minutes=0.05)
    assert plain.tuned == ""
    assert "drift on held-out inputs" in tuned.tuned
    assert (again.tuned, plan.read_text()) == (tuned.tuned, written)
    assert tuned.solution.genome.tolist() == plain.solution.genome.tolist()
    before, after = (each.solution.model.state_dict() for each in (plain, tuned))
    assert tuned.solution.refitted == all(torch.equal(after[name], before[name]) for name in before)
    with pytest.raises(InputError, match="at least 64 inputs"):
        dp.thin(
            folder / "net.onnx", folder / "ready.npz", target="flops=80%", out=tmp_path / "x.onnx",
            run_dir=folder / "run", workers=1, tune_minutes=0.05,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"pictures": (40, 3, 8, 8), "other": (40, 2)}, r"ready.*\(images\), got .*np\.savez\(.*images="),
        ({"images": (40, 8, 8, 3)}, r"40x8x8x3.*array\.transpose\(0, 3, 1, 2\)"),
        ({"images": (40, 3, 7, 8)}, r"x3x8x8, got an array of 40x3x7x8.*prepare"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_with_what_to_do(
    folder: Path, tmp_path: Path, arrays: dict[str, tuple[int, ...]], said: str
) -> None:
    ready = tmp_path / "ready.npz"
    np.savez(ready, **{name: np.zeros(shape, np.float32) for name, shape in arrays.items()})
    with pytest.raises(InputError, match=said):
        dp.thin(
            folder / "net.onnx", ready, target="flops=80%", out=tmp_path / "x.onnx", run_dir=tmp_path / "r"
        )


def test_fractions_for_an_input_of_bytes_are_refused() -> None:
    value = FileValue("images", np.dtype(np.uint8), ("n", 2))
    whole = read_inputs(np.array([[0.0, 255.0]]), [value], PictureOptions(), 5)
    assert whole["images"].tolist() == [[0, 255]]
    for wrong in ([[0.5, 1.0]], [[0.0, 256.0]], [[-1.0, 0.0]]):
        with pytest.raises(InputError, match=r"'images' takes whole numbers \(uint8\)"):
            read_inputs(np.array(wrong), [value], PictureOptions(), 5)


def test_a_target_that_no_candidate_meets_says_what_to_do(thinned, folder: Path, tmp_path: Path) -> None:
    arguments = [
        "thin",
        str(folder / "net.onnx"),
        "--inputs",
        str(folder / "ready.npz"),
        "--target",
        "size=1KB",
    ]
    arguments += [
        "--out",
        str(tmp_path / "x.onnx"),
        "--run",
        str(folder / "run"),
        "--workers",
        "1",
        "--quiet",
    ]
    result = CliRunner().invoke(cli, arguments)
    said = str(result.exception)
    assert said.count("size=1kB") == 1
    assert "not met; the nearest is candidate" in said and "another folder (--run)" in said
    assert "continue with" not in said
    assert not (tmp_path / "x.onnx").exists()
