"""The wheel works in an environment of its own, and each extra has the packages of its feature.

Packages of the core are installed. Those of the extras (490 MB for Spark alone) are taken from the environment of the
tests, and pip checks without an index that they satisfy the extra.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from aflow.model.distribution import NAME, VERSION, install_command, with_extras
from tests.examples.test_examples import documented_output
from tests.packaging.test_names import EXTRAS, PROJECT

pytestmark = pytest.mark.slow

EXAMPLE: Final = PROJECT / "examples" / "hello_stream.py"
SECONDS: Final = 300

#: A program for each extra that needs it.
PROGRAMS: Final = {
    "parquet": """
import aflow as af, asyncio
from aflow_connectors.files import ParquetSink
flow = af.Flow("parquet")
flow.source([{"a": 1}]).to(ParquetSink("out.parquet"))
asyncio.run(flow.run())
""",
    "zstd": """
import aflow as af, asyncio
from aflow_connectors.files import JsonLinesSink
flow = af.Flow("zstd")
flow.source([1]).to(JsonLinesSink("out.jsonl.zst"))
asyncio.run(flow.run())
""",
    "sketch": "import aflow as af; af.aggregates.quantile(0.5)",
    "rocksdb": """
import aflow as af, asyncio
flow = af.Flow("rocksdb")
flow.source([1]).key_by(lambda n: n).fold(int, lambda a, b: a + b, name="sum").to(af.CollectSink())
asyncio.run(flow.run(options=af.Options(state=af.backends.OnDisk(af.backends.DiskEngine.ROCKSDB))))
""",
    "bench": "import aflow.bench",
    "otel": "import aflow.telemetry",
    "http": "from aflow_connectors.http import HttpPoll; HttpPoll('http://localhost/')",
    "kafka": "from aflow_connectors.kafka import KafkaSource; KafkaSource('localhost:9092', 't')",
    "web": "import aflow.web",
    "schemas": "from aflow_connectors.schemas import Avro, Protobuf; Avro(int)",
    "postgres": "from aflow_connectors.postgres import PostgresSink; PostgresSink('postgresql://localhost/d', 't')",
    "rabbitmq": "from aflow_connectors.rabbitmq import RabbitmqSource; RabbitmqSource('amqp://localhost/', 'q')",
    "mqtt": "from aflow_connectors.mqtt import MqttSource; MqttSource('mqtt://localhost', 't', client_id='c')",
    "nats": "from aflow_connectors.nats import NatsSource; NatsSource('nats://localhost', 's')",
    "redis": "from aflow_connectors.redis import RedisSource; RedisSource('redis://localhost', 's')",
    "s3": """
from aflow_connectors.s3.bucket import Bucket
Bucket("test", "s3://bucket", client={"region": "eu-west-1"}, store=None).store
""",
    "lake": "from aflow_connectors.delta.table import TableLocation; TableLocation('t', 'nothing', None).exists()",
    "spark": "from aflow_connectors.spark.environment import check_packages; check_packages()",
}
#: Extras that combine others.
TOGETHER: Final = {"files": ("parquet", "zstd")}

#: Runs programs, a dict of names and texts in JSON, one after the other, and prints the errors by name.
RUN_ALL: Final = """
import json, sys, traceback
failed = {}
for name, program in json.loads(sys.argv[1]).items():
    try:
        exec(program, {"__name__": "__main__"})
    except Exception:
        failed[name] = traceback.format_exc()
print(json.dumps(failed))
"""


def run(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in ``folder`` without variables that point to the checkout or the environment of the tests."""
    cleared = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONSAFEPATH"}
    environment = {name: value for name, value in os.environ.items() if name not in cleared}
    return subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def succeeds(*command: str | Path, folder: Path) -> str:
    done = run(*command, folder=folder)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}{done.stderr}"
    return done.stdout


class Environment:
    """A virtual environment, filled by the pip of the tests."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True, with_pip=False)
        self.bin: Final = folder / "bin"
        self.python: Final = self.bin / "python"
        self.packages: Final = next(folder.glob("lib/python*/site-packages"))
        self._folder: Final = folder

    def pip(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        pip = (sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet")
        # Programs compile the modules that they import.
        return run(*pip, "--no-compile", *arguments, folder=self._folder)


@pytest.fixture(scope="module")
def distributions(
    require: Callable[[str, str], None], tmp_path_factory: pytest.TempPathFactory
) -> list[Path]:
    """Build the wheel and the sdist as `make dist` does: the wheel from the sdist."""
    require("twine", "make setup")
    built = tmp_path_factory.mktemp("dist")
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", built)
    succeeds(*build, folder=PROJECT)
    return sorted(built.iterdir())


@pytest.fixture(scope="module")
def wheel(distributions: list[Path]) -> Path:
    return next(path for path in distributions if path.suffix == ".whl")


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Create an environment with the wheel and its requirements only."""
    made = Environment(tmp_path_factory.mktemp("core") / "venv")
    done = made.pip("--constraint", PROJECT / "constraints.txt", wheel)
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def full(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Create an environment with the wheel and the packages of the environment that runs the tests."""
    made = Environment(tmp_path_factory.mktemp("full") / "venv")
    done = made.pip("--no-deps", "--no-index", wheel)
    assert done.returncode == 0, done.stderr
    made.packages.joinpath("tests.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return made


def test_wheel_and_sdist_pass_the_checks_of_a_package_index(distributions: list[Path]) -> None:
    stem = f"{NAME.replace('-', '_')}-{VERSION}"

    assert [path.name for path in distributions] == [
        f"{stem}-py3-none-any.whl",
        f"{stem}.tar.gz",
    ]
    succeeds(sys.executable, "-m", "twine", "check", "--strict", *distributions, folder=PROJECT)


def test_the_wheel_has_the_two_packages_only(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        top = {name.partition("/")[0] for name in archive.namelist()}

    assert top == {"aflow", "aflow_connectors", f"{NAME.replace('-', '_')}-{VERSION}.dist-info"}


def test_the_wheel_has_the_page_and_the_licences_of_its_parts(wheel: Path) -> None:
    static = PROJECT / "aflow" / "web" / "static"
    files = {path.relative_to(PROJECT).as_posix() for path in static.rglob("*") if path.is_file()}
    licences = {path.name for path in static.glob("vendor/LICENSE.*.txt")}

    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())

    assert len(files) > 15
    assert files <= names
    assert licences <= {Path(name).name for name in names if ".dist-info/licenses/" in name}


def test_the_first_example_runs_where_only_the_wheel_is_installed(
    core: Environment, tmp_path: Path
) -> None:
    output = succeeds(core.python, "-W", "error", "-I", EXAMPLE, folder=tmp_path)

    assert output.strip() == documented_output(EXAMPLE.read_text(encoding="utf-8"))


def test_the_command_says_the_version_of_the_wheel(core: Environment, tmp_path: Path) -> None:
    asked = f"from importlib.metadata import version; print(version({NAME!r}))"

    assert succeeds(core.bin / "aflow", "--version", folder=tmp_path) == f"aflow {VERSION}\n"
    assert succeeds(core.python, "-c", asked, folder=tmp_path) == f"{VERSION}\n"


def test_each_extra_has_a_program() -> None:
    assert {*PROGRAMS, *TOGETHER} == set(EXTRAS)


def errors_of(programs: Mapping[str, str], python: Path, folder: Path) -> dict[str, str]:
    """Run ``programs`` in one process, since each would import aflow, and return the tracebacks of those that fail."""
    output = succeeds(python, "-I", "-c", RUN_ALL, json.dumps(programs), folder=folder)
    errors: dict[str, str] = json.loads(output.splitlines()[-1])
    return errors


def test_without_an_extra_its_feature_names_the_command_that_installs_it(
    core: Environment, tmp_path: Path
) -> None:
    errors = errors_of(PROGRAMS, core.python, tmp_path)

    assert errors.keys() == PROGRAMS.keys()
    assert [extra for extra, text in errors.items() if install_command(extra) not in text] == []


def test_the_packages_of_an_extra_are_compatible_and_its_feature_runs_with_them(
    full: Environment, tmp_path: Path
) -> None:
    # There are no wheels of datasketches for this Python.
    omitted = {"sketch"} if sys.version_info >= (3, 14) else set[str]()
    extras = [extra for extra in EXTRAS if extra not in omitted]
    programs = {extra: text for extra, text in PROGRAMS.items() if extra not in omitted}

    done = full.pip("--dry-run", "--no-index", with_extras(*extras))

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert errors_of(programs, full.python, tmp_path) == {}
