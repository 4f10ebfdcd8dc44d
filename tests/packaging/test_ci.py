"""CI runs `make test` in a copy of the checkout named `aflow`, without the privileges of root where possible."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

PROJECT: Final = Path(__file__).parents[2]
SECONDS: Final = 300

#: A `make` that reports where it runs and as whom, a java that is new enough, and a Chromium.
MAKE: Final = """#!/bin/sh
case "$*" in *setup*) exit 0 ;; esac
echo "folder $(basename "$PWD")"
echo "user $(id -un)"
echo "home $HOME"
echo "temporary $TMPDIR"
echo "files $(test -f aflow/__init__.py && test -f tests/conftest.py && test ! -e .venv && echo complete)"
touch "$TMPDIR/left over" ready 2>/dev/null || echo "cannot write"
if [ -n "${WAITS:-}" ]; then echo waiting; sleep 60; fi
echo "3 failed, 4 passed"
exit 3
"""
JAVA: Final = "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n"
CHROMIUM: Final = "#!/bin/sh\n"


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a folder that every user can enter, unlike ``tmp_path``."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    for name, script in (("make", MAKE), ("java", JAVA), ("chromium", CHROMIUM)):
        program = folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(script)
        program.chmod(0o755)
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def start(place: Path, **more: str) -> subprocess.Popen[str]:
    environment: Mapping[str, str] = {
        **{name: value for name, value in os.environ.items() if name != "JAVA_HOME"},
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "TMPDIR": str(place / "tmp"),
        **more,
    }
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [PROJECT / ".ci" / "run"], env=environment, stdout=pipe, stderr=pipe, text=True
    )


def finish(place: Path) -> tuple[int, list[str], str]:
    with start(place) as process:
        out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out.splitlines(), err


@pytest.mark.slow
def test_the_tests_run_in_a_complete_copy_in_a_folder_named_aflow(place: Path) -> None:
    _, lines, err = finish(place)

    assert "folder aflow" in lines, err
    assert "files complete" in lines
    assert "cannot write" not in lines


@pytest.mark.slow
def test_the_last_line_and_the_exit_code_of_make_are_passed_on(place: Path) -> None:
    code, lines, _ = finish(place)

    assert code == 3
    assert lines[-1] == "3 failed, 4 passed"


@pytest.mark.slow
def test_no_files_are_left(place: Path) -> None:
    finish(place)

    assert list((place / "tmp").iterdir()) == []


@pytest.mark.slow
def test_no_files_are_left_after_a_termination(place: Path) -> None:
    with start(place, WAITS="1") as process:
        assert process.stdout is not None
        with suppress(StopIteration):
            while next(process.stdout) != "waiting\n":
                pass
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=SECONDS)

    assert code == 143
    assert list((place / "tmp").iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_root_runs_them_as_a_user_with_a_home_of_its_own(place: Path) -> None:
    _, lines, err = finish(place)

    if "The tests run as root" in err:
        pytest.skip(err.strip())
    assert "user nobody" in lines
    home, temporary = (
        next(line.split()[1] for line in lines if line.startswith(word))
        for word in ("home", "temporary")
    )
    assert Path(home).name == "home"
    assert Path(home).parent == Path(temporary).parent
    assert Path(home).is_relative_to(place)


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_root_reports_the_reason_if_no_other_user_can_run_them(place: Path) -> None:
    (place / "tmp").chmod(0o700)

    code, lines, err = finish(place)

    assert "user root" in lines
    assert "The tests run as root in " in err
    assert "or nobody cannot read" in err
    assert code == 3


def test_the_tests_write_byte_code_though_the_environment_forbids_it() -> None:
    show = "show: ; @echo forbidden=$$PYTHONDONTWRITEBYTECODE"

    done = subprocess.run(
        ["make", "--no-print-directory", f"--eval={show}", "show"],
        cwd=PROJECT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )

    assert done.stdout == "forbidden=\n", done.stderr


def have_chromium(folder: Path, ci: str, *programs: str) -> subprocess.CompletedProcess[str]:
    """Run the script that `make test` runs, for a user other than root whose path has these programs only."""
    for program in programs:
        (folder / program).write_text("#!/bin/sh\n")
        (folder / program).chmod(0o755)
    (folder / "bash").symlink_to(shutil.which("bash") or "/bin/bash")
    (folder / "id").write_text("#!/bin/sh\necho 1000\n")
    (folder / "id").chmod(0o755)
    return subprocess.run(
        [PROJECT / "scripts" / "have-chromium"],
        env={"PATH": str(folder), "CI": ci},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@pytest.mark.parametrize("program", ["chromium", "google-chrome"])
def test_nothing_is_said_where_there_is_a_chromium(tmp_path: Path, program: str) -> None:
    done = have_chromium(tmp_path, "true", program)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)], ids=["tests skip", "in CI"])
def test_the_command_that_installs_chromium_is_named_and_ci_fails(
    tmp_path: Path, ci: str, code: int
) -> None:
    done = have_chromium(tmp_path, ci)

    assert done.returncode == code
    assert "'sudo apt-get install chromium' installs it" in done.stderr
    assert ("Without it the tests of the page are skipped." in done.stderr) == (code == 0)
