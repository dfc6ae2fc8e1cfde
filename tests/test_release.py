"""What is released: the package with all its data files and nothing else, described as it is."""

import tarfile
import zipfile
from pathlib import Path

from deeppruning.system.toml import read_toml
from release import BESIDE, PACKAGE, ROOT, package_files, sdist_faults, wheel_faults

PROJECT = read_toml(ROOT / "pyproject.toml")


def wheel_of(files: set[str], place: Path) -> Path:
    """A wheel with these files, all of them empty."""
    with zipfile.ZipFile(place, "w") as archive:
        for name in [*sorted(files), "deeppruning_es-1.dist-info/METADATA"]:
            archive.writestr(name, "")
    return place


def sdist_of(files: set[str], place: Path) -> Path:
    with tarfile.open(place, "w:gz") as archive:
        for name in [*sorted(files), "src/deeppruning_es.egg-info/SOURCES.txt"]:
            archive.addfile(tarfile.TarInfo(f"deeppruning_es-1/{name}"))
    return place


def test_every_file_of_the_package_is_released() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["deeppruning"]
    code = set(PACKAGE.rglob("*.py"))
    data = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    assert {path.relative_to(PACKAGE.parent).as_posix() for path in code | data} == package_files()
    # A folder of code without this file is no package for setuptools, and would be left out.
    assert [path for path in code if not (path.parent / "__init__.py").is_file()] == []


def test_a_wheel_that_lacks_a_file_or_has_one_too_many_is_found_out(tmp_path: Path) -> None:
    files = package_files()
    assert wheel_faults(wheel_of(files, tmp_path / "good.whl")) == []
    lacking = (files - {"deeppruning/py.typed"}) | {"tests/test_api.py"}
    faults = wheel_faults(wheel_of(lacking, tmp_path / "bad.whl"))
    assert faults == ["lacks deeppruning/py.typed", "needs no tests/test_api.py"]


def test_an_sdist_also_holds_what_a_build_needs(tmp_path: Path) -> None:
    files = {f"src/{name}" for name in package_files()} | BESIDE
    assert sdist_faults(sdist_of(files, tmp_path / "good.tar.gz")) == []
    assert sdist_faults(sdist_of(files - {"LICENSE"}, tmp_path / "bad.tar.gz")) == ["lacks LICENSE"]


def test_the_description_of_the_package_is_true() -> None:
    project = PROJECT["project"]
    lowest = project["requires-python"].removeprefix(">=")
    pythons = [each.rsplit(" ", 1)[1] for each in project["classifiers"] if ":: Python :: 3." in each]
    assert pythons[0] == lowest and pythons == [f"3.{minor}" for minor in range(10, 14)]
    assert project["license"] == "MIT" and (ROOT / "LICENSE").read_text().startswith("MIT License")


def test_the_page_about_installing_lists_every_dependency_with_its_lowest_version() -> None:
    page = (ROOT / "docs" / "installing.md").read_text()
    needed = [each.split(";")[0].strip() for each in PROJECT["project"]["dependencies"]]
    for name, lowest in (each.split(">=") for each in needed):
        assert f"| {name} | {lowest} |" in page, f"{name}>={lowest}"
