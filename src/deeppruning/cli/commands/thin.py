"""`deeppruning thin`: an ONNX file in, a thinner ONNX file out, by inputs alone."""

from pathlib import Path
from typing import Any

import click

from deeppruning.cli.options.backend import BackendChoice, backend_options
from deeppruning.cli.options.flags import GroupedCommand, flag, given_options, option_flags, output_options
from deeppruning.cli.running import resumable
from deeppruning.config import SearchConfig
from deeppruning.display.picture import make_progress
from deeppruning.options import DATA, FINETUNING, OUTPUT, SEARCH, described_options
from deeppruning.system.commands import command
from deeppruning.system.files import plain_name
from deeppruning.thinning import PictureOptions
from deeppruning.thinning import thin as thin_file

# What the paper's search or labels would need is left out.
_WITHOUT = [
    "sample", "strategy", "mutation", "selection", "parents", "evaluation", "objective", "encoding",
    "latency_runtime",
    *(name for name in described_options(SearchConfig) if name.startswith("eval_")),
]  # fmt: skip
_HELP = {"round_to": "Keep a multiple of this number of filters in each layer; 1 allows any number."}


@click.command(cls=GroupedCommand, brief=True)
@click.argument("model", type=click.Path(path_type=Path))
@flag(
    "--inputs", heading=DATA, common=True, required=True, metavar="INPUTS",
    help="Example inputs: a folder of pictures (PNG, JPEG), preprocessed arrays (an .npz file with one array "
    "per input, or an .npy file), or file.py:function.",
)  # fmt: skip
@option_flags(PictureOptions)
@flag(
    "--target", heading=SEARCH, common=True, multiple=True, required=True, metavar="NAME=LIMIT",
    help="Upper limits for the new file: flops=70%, params=500k, size=1MB, latency=60% (of the old file's) "
    "or latency=5ms; several are separated by commas, or the option is repeated.",
)  # fmt: skip
@flag(
    "--out", heading=OUTPUT, common=True, required=True, type=click.Path(path_type=Path),
    help="The ONNX file to write.",
)  # fmt: skip
@flag(
    "--run", "run_dir", heading=OUTPUT, common=True, type=click.Path(path_type=Path), metavar="FOLDER",
    help="Folder for the search and its report. [runs/MODEL-thin]",
)  # fmt: skip
@flag(
    "--tune-minutes", heading=FINETUNING, common=True, type=click.FloatRange(min=0.01),
    help="Minutes to train the chosen network afterwards to reproduce the outputs of the original; if they "
    "come no nearer, the weights from before are kept. Use it with thousands of inputs (--sample). [no "
    "training]",
)  # fmt: skip
@flag(
    "--sample", heading=DATA, common=True, type=click.IntRange(min=32),
    help="Number of inputs to search with; up to a quarter more are used for the final comparison. [1000, "
    "fewer if they are large]",
)  # fmt: skip
@option_flags(SearchConfig, leave_out=_WITHOUT, help=_HELP, paper=False)
@backend_options()
@output_options("auto")
def thin(
    model: Path, inputs: str, target: tuple[str, ...], out: Path, run_dir: Path | None,
    tune_minutes: float | None, device: str | None, quiet: bool, as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Make the ONNX file MODEL smaller and faster. It needs example inputs, but no labels.

    Searches for filters that can be removed, refits the others in closed form to keep the outputs as they
    were, and writes the best network within --target as an ONNX file with the same inputs, outputs, opset
    and metadata; a size that is left open in MODEL, such as that of the batch, stays open. Every fifth input
    is held out: on these, the outputs and the latency of both files are compared in onnxruntime.

    The search is saved in a folder, with a report. If it is stopped, the same command continues it; with
    another --target, the same command chooses another network from it without a new search.

    \b
    Example:
      deeppruning thin detector.onnx --inputs photos/ --target flops=70% --out thin.onnx
      deeppruning thin detector.onnx --inputs photos/ --target latency=60% --out thin.onnx
      deeppruning thin resnet.onnx --inputs photos/ --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225 \\
        --target size=10MB --out thin.onnx
      deeppruning thin detector.onnx --inputs photos/ --sample 5000 --target flops=50% --tune-minutes 30 \\
        --out thin.onnx
      deeppruning thin speech.onnx --inputs features.npz --target params=50% --out thin.onnx
    """
    search = SearchConfig(**given_options(SearchConfig, settings))
    pictures = PictureOptions(**given_options(PictureOptions, settings))
    choice = BackendChoice.take(settings).or_as_in({})
    progress = make_progress(quiet=quiet, as_json=as_json)
    chosen_device = device or "auto"
    backend = choice.make(search.threads, chosen_device, progress.say)
    run_dir = run_dir or Path("runs") / f"{plain_name(model.stem)}-thin"
    progress.say(f"reading {model} and {inputs}")
    again = command("thin", *click.get_current_context().meta["given"])
    with resumable(run_dir, again), backend, progress:
        progress.state.workers, progress.state.judged_by = backend.room(), "drift"
        thinned = thin_file(
            model, inputs, target=",".join(target), out=out, pictures=pictures,
            search=search if search.changed() else None, tune_minutes=tune_minutes, run_dir=run_dir,
            device=chosen_device, backend=backend, observer=progress, progress=False,
        )  # fmt: skip
    if as_json:
        progress.tell("thinned", **thinned.to_json())
        return
    progress.say(f"{thinned.table()}\n")
    click.echo(repr(thinned))
    progress.say(f"run folder: {thinned.run_dir}\nreport: {thinned.page}")
