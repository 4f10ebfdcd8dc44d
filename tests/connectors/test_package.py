"""What is packed into the wheel."""

from __future__ import annotations

import tomllib

from tests.architecture.rooms import PROJECT


def test_each_package_of_the_wheel_tells_type_checkers_that_it_is_typed() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))

    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    assert "connectors/aflow_connectors" in packages
    assert [name for name in packages if not (PROJECT / name / "py.typed").is_file()] == []
