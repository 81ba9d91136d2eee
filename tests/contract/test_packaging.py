from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("actors", "config", "schemas", "supervisor")
HOSTILE = ("roost", "actors", "schemas", "config", "supervisor", "trio", "msgspec")


def test_every_package_folder_is_listed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(project["tool"]["setuptools"]["packages"])
    inits = (path for top in PACKAGES for path in (ROOT / top).rglob("__init__.py"))
    assert listed == {"roost." + ".".join(path.parent.relative_to(ROOT).parts) for path in inits}


def test_a_package_init_holds_its_docstring_and_nothing_else() -> None:
    for top in PACKAGES:
        for path in (ROOT / top).rglob("__init__.py"):
            text = path.read_text().strip()
            assert text.startswith('"""'), path
            assert text.endswith('"""'), path
            assert text.count('"""') == 2, path


def test_no_module_is_imported_under_two_names() -> None:
    assert not set(PACKAGES) & set(sys.modules)


def test_a_working_folder_cannot_shadow_the_daemon(tmp_path: Path) -> None:
    for name in HOSTILE:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit(99)\n")
    code = "import trio, roost.schemas.control, roost.config.load, roost.supervisor.spec"
    search = ":".join(path for path in sys.path if path)
    ended = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": search},
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0


def test_the_version_of_the_daemon_is_that_of_the_package() -> None:
    from roost.config.model import VERSION

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["version"] == VERSION
