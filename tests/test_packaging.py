from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 cannot read TOML")

ROOT = Path(__file__).parent.parent
FOLDERS = {"core": "bertpool", "cli": "bertpool.cli", "pooling": "bertpool.pooling"}
NOT_SOURCE = shutil.ignore_patterns(
    ".*", "build", "dist", "*.egg-info", "__pycache__", "*.parquet", "*.npy", "*.npy.json"
)
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def _modules() -> dict[str, Path]:
    """Map the name by which each module is imported to its file."""
    found = {}
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


MODULES = _modules()


def imports(path: Path) -> Iterator[str]:
    """Yield the full name of each module that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            yield node.module
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name for name in names if name in MODULES)


def part_of(module: str) -> str | None:
    """Return the top-level folder of a module of bertpool, or None for one of others."""
    if module.split(".")[0] != "bertpool":
        return None
    return next((part for part in ("cli", "pooling") if module.split(".")[1:2] == [part]), "core")


@dataclass(frozen=True)
class Built:
    """Paths inside a wheel and a source distribution."""

    wheel: list[str]
    sdist: list[str]
    wheel_metadata: str
    entry_points: str


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build wheel and source distribution from a clean copy of the tree."""
    copy = tmp_path_factory.mktemp("build") / "tree"
    shutil.copytree(ROOT, copy, ignore=NOT_SOURCE)
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--sdist", "--outdir", "dist"],
        cwd=copy,
        check=True,
        capture_output=True,
    )
    (wheel,) = (copy / "dist").glob("*.whl")
    (sdist,) = (copy / "dist").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive, tarfile.open(sdist) as source:
        names = archive.namelist()
        info = next(name for name in names if name.endswith(".dist-info/METADATA"))
        return Built(
            wheel=names,
            sdist=[member.name.partition("/")[2] for member in source if member.isfile()],
            wheel_metadata=archive.read(info).decode(),
            entry_points=archive.read(info.replace("METADATA", "entry_points.txt")).decode(),
        )


def test_the_packages_that_pyproject_lists_are_the_folders() -> None:
    packages = {
        name if path.name == "__init__.py" else name.rpartition(".")[0]
        for name, path in MODULES.items()
    }
    assert set(PYPROJECT["tool"]["setuptools"]["packages"]) == packages


def test_every_folder_with_a_module_is_a_package() -> None:
    for path in MODULES.values():
        assert (path.parent / "__init__.py").is_file()


@pytest.mark.parametrize("module", MODULES)
def test_imports_run_from_cli_to_core_to_pooling(module: str) -> None:
    allowed = {"cli": {"cli", "core", "pooling"}, "core": {"core", "pooling"}}
    if module == "bertpool.__main__":  # `python -m bertpool`, which must lie in core
        allowed["core"] = {"cli"}
    parts = {part for name in imports(MODULES[module]) if (part := part_of(name))}
    assert parts <= allowed.get(part_of(module) or "", {"pooling"})


def _third_party(path: Path) -> set[str]:
    names = {name.split(".")[0] for name in imports(path)}
    return names - set(sys.stdlib_module_names) - {"bertpool"}


def test_pooling_knows_torch_and_numpy_alone() -> None:
    paths = [path for name, path in MODULES.items() if part_of(name) == "pooling"]
    assert set().union(*map(_third_party, paths)) == {"torch", "numpy"}


RUNTIME_EXTRAS = ("ray", "stats", "plot", "umap")


def _declared(*extras: str) -> set[str]:
    """Name what the project requires, with some of its extras."""
    project = PYPROJECT["project"]
    optional = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for extra in extras for one in optional[extra])]
    return {re.split(r"[^\w-]", one)[0] for one in wanted}


def test_every_import_is_of_a_declared_dependency() -> None:
    declared = _declared(*RUNTIME_EXTRAS)
    imported = set().union(*map(_third_party, MODULES.values()))
    # An extra that isn't installed here can't say what it is called on the index.
    owners = {"umap": ["umap-learn"], **metadata.packages_distributions()}
    assert {name for name in imported if not declared & set(owners[name])} == set()


def test_no_module_imports_click_which_typer_holds_inside() -> None:
    assert all("click" not in _third_party(path) for path in MODULES.values())


def test_the_wheel_holds_bertpool_and_nothing_else(built: Built) -> None:
    tops = {name.split("/")[0] for name in built.wheel}
    version = PYPROJECT["project"]["version"]
    assert tops == {"bertpool", f"bertpool-{version}.dist-info"}


def test_the_wheel_holds_every_module_and_the_typing_marker(built: Built) -> None:
    expected = {
        name.replace(".", "/") + ("/__init__.py" if path.name == "__init__.py" else ".py")
        for name, path in MODULES.items()
    }
    inside = {name for name in built.wheel if name.startswith("bertpool/")}
    assert inside == expected | {"bertpool/py.typed"}


def test_the_wheel_starts_the_command(built: Built) -> None:
    assert "bertpool = bertpool.cli.main:main" in built.entry_points


def test_the_wheel_needs_runtime_dependencies_alone(built: Built) -> None:
    lines = re.findall(r"^Requires-Dist: (.*)$", built.wheel_metadata, flags=re.MULTILINE)
    needed = {re.split(r"[^\w-]", line)[0] for line in lines if "extra ==" not in line}
    assert needed == _declared()
    assert not needed & {"pytest", "sentence-transformers", "pandas", "polars", "duckdb"}


def test_the_wheel_holds_the_licence(built: Built) -> None:
    assert any(name.endswith("LICENSE") for name in built.wheel)


@pytest.mark.parametrize("folder", ["tests", "sample_data", *FOLDERS])
def test_the_source_distribution_holds_every_file_of_a_folder(built: Built, folder: str) -> None:
    expected = {
        str(path.relative_to(ROOT))
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
        and not {"__pycache__", ".pytest_cache"} & set(path.parts)
        and path.suffix not in (".parquet", ".npy", ".pyc")
        and not path.name.endswith(".npy.json")
    }
    assert {name for name in built.sdist if name.startswith(f"{folder}/")} == expected


@pytest.mark.parametrize("name", ["pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"])
def test_the_source_distribution_holds_what_describes_it(built: Built, name: str) -> None:
    assert name in built.sdist
