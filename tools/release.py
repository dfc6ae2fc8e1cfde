"""Builds the sdist and the wheel, checks them, and tries the wheel in a new environment: `make release`.

`python tools/release.py --no-try` builds and checks only; it needs the packages `build` and `twine`.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "deeppruning"
# What the sdist holds besides the package: what a build needs, and what setuptools writes.
BESIDE = {"LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}
FAST_HELP = 0.5  # seconds of the processor, the best of a few

# `dp.search` as a new user would try it: a network of one's own, inputs without labels.
SEARCH = """
import torch
from torch import nn
import deeppruning as dp

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
).eval()
front = dp.search(model, torch.randn(64, 3, 16, 16), search=dp.SearchConfig(offspring=4, generations=2))
thin = front.best(flops=0.6)
whole = dp.ChannelGraph(model, torch.randn(1, 3, 16, 16))
assert thin.flops <= 0.6 * whole.flops(whole.full_genome()), thin.flops
assert thin.model(torch.randn(2, 3, 16, 16)).shape == (2, 10)
print(f"deeppruning {dp.__version__} from {dp.__file__}: a network with {thin.flops:,} FLOPs")
"""


def package_files() -> set[str]:
    """Every file that a user needs, as a wheel names it: the whole package, without what Python compiles."""
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(PACKAGE.parent).as_posix() for path in files}


def wheel_faults(wheel: Path) -> list[str]:
    """What a wheel lacks or has too much of; its own description (`*.dist-info`) is no fault."""
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not name.split("/")[0].endswith(".dist-info")}
    return _faults(held, package_files())


def sdist_faults(sdist: Path) -> list[str]:
    """The same of an sdist, which also holds what a build needs."""
    with tarfile.open(sdist) as archive:
        names = [member.name.split("/", 1)[1] for member in archive.getmembers() if member.isfile()]
    held = {name for name in names if ".egg-info/" not in name}
    return _faults(held, {f"src/{name}" for name in package_files()} | BESIDE)


def _faults(held: set[str], wanted: set[str]) -> list[str]:
    missing, extra = sorted(wanted - held), sorted(held - wanted)
    return [f"lacks {name}" for name in missing] + [f"needs no {name}" for name in extra]


def build(folder: Path) -> tuple[Path, Path]:
    """The sdist and the wheel that is built from it, in an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    # Files of an earlier build would get into the wheel.
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True, stdout=subprocess.DEVNULL
    )
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def check(sdist: Path, wheel: Path) -> None:
    """Stop unless both are described well and hold what they should."""
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", sdist, wheel], check=True)
    faults = [f"{sdist.name} {fault}" for fault in sdist_faults(sdist)]
    faults += [f"{wheel.name} {fault}" for fault in wheel_faults(wheel)]
    if faults:
        sys.exit("\n".join([*faults, "see package-data in pyproject.toml, and MANIFEST.in"]))
    for file in (sdist, wheel):
        print(f"{file.name}: {file.stat().st_size / 1e3:.0f} kB")


def try_wheel(wheel: Path) -> None:
    """Install the wheel into a new environment and use it from an empty folder."""
    with tempfile.TemporaryDirectory() as place:
        elsewhere = Path(place) / "elsewhere"
        elsewhere.mkdir()
        home = Path(place) / "environment"
        venv.create(home, with_pip=True)
        programs = home / "bin"
        # Nothing of this repository: neither its folder nor a path that the caller set.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}

        def run(*words: str | Path) -> None:
            print("$", *(word if len(str(word)) < 200 else "..." for word in words), flush=True)
            subprocess.run([programs / words[0], *words[1:]], check=True, cwd=elsewhere, env=environment)

        pip = ("python", "-m", "pip", "--disable-pip-version-check")
        run(*pip, "install", "-q", "-c", ROOT / "constraints.txt", wheel)
        run(*pip, "check")
        print_sizes(home)
        print_help_time(programs / "deeppruning", environment)
        run("python", "-c", SEARCH)
        run("deeppruning", "demo", "--quiet")
        if not (elsewhere / "runs" / "demo" / "report.html").is_file():
            sys.exit("the demo wrote no report")


def print_help_time(program: Path, environment: dict[str, str]) -> None:
    """How long `--help` takes: by the clock, and of the processor, which does not count other programs."""
    clock, processor = [], []
    for _ in range(5):
        started, before = time.monotonic(), _children_seconds()
        subprocess.run([program, "--help"], check=True, env=environment, stdout=subprocess.DEVNULL)
        clock.append(time.monotonic() - started)
        processor.append(_children_seconds() - before)
    note = "" if min(processor) < FAST_HELP else f"; it should take less than {FAST_HELP} s"
    times = f"{min(clock):.2f} s, {min(processor):.2f} s of the processor"
    print(f"deeppruning --help: {times} (the best of {len(clock)}){note}", flush=True)


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def print_sizes(environment: Path) -> None:
    """What each installed package takes on disk, the largest first."""
    (packages,) = environment.glob("lib/python*/site-packages")
    sizes = {
        folder.name: sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        for folder in packages.iterdir()
        if folder.is_dir() and not folder.name.endswith((".dist-info", "__pycache__"))
    }
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        print(f"{size / 1e6:8.1f} MB  {name}")


def main() -> None:
    """Build, check and, unless told otherwise, try."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-try", action="store_true", help="build and check only")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for both files [dist]")
    options = parser.parse_args()
    sdist, wheel = build(options.out.resolve())
    check(sdist, wheel)
    if not options.no_try:
        try_wheel(wheel)
    print(f"ready: {sdist} and {wheel}")


if __name__ == "__main__":
    main()
