"""A Python environment in which Spark's own Kafka connector runs beside Ottla's.

The connector must match its Spark, and there is none for every release: this is the newest pair
that can be had whole. The environment is made once, by uv and Maven, in `.cache`, with Ottla from
this tree in it, so that both are measured and compared on the same Spark.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from bench.brokers import CACHE, DOWNLOAD_S_MAX, ROOT, Missing

SPARK_VERSION = "4.2.0"
FOLDER = CACHE / f"spark-peer-{SPARK_VERSION}"
# Fetched one by one: Spark's POMs name a mirror that cannot always be reached.
ARTIFACTS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)


def peer() -> tuple[Path, str]:
    """The Python and the jars, or this Python and none, with the reason on stderr."""
    try:
        return prepare()
    except Missing as error:
        print(f"Spark's own connector is left out: {error}", file=sys.stderr)
        return Path(sys.executable), ""


def prepare() -> tuple[Path, str]:
    """The Python of the environment and its jars, comma-separated; made if they are not there."""
    if shutil.which("java") is None:
        raise Missing("java is not installed")
    python = FOLDER / "bin" / "python"
    if not (FOLDER / "complete").exists():
        _run([_uv(), "venv", "-q", "--clear", "--python", _version(), str(FOLDER)])
        _run([_uv(), "pip", "install", "-q", "--python", str(python), *_requirements()])
        (FOLDER / "complete").touch()
    jars = FOLDER / "jars"
    for artifact in ARTIFACTS:
        _, name, version = artifact.split(":")
        if not (jars / f"{name}-{version}.jar").exists():
            _fetch(artifact, jars)
    return python, ",".join(str(path) for path in sorted(jars.glob("*.jar")))


def worker_python(python: Path) -> Path:
    """The same Python for Spark's workers, which then take pyspark from its installation.

    Spark puts pyspark.zip first on their path, and what is in a zip is compiled at every start: a
    busy machine then exceeds the ten seconds that Spark gives a source's process to start.
    """
    script = FOLDER / "worker-python"
    lines = (
        "#!/bin/sh",
        "PYTHONPATH=$(echo \"$PYTHONPATH\" | sed 's#[^:]*/pyspark\\.zip:##')",
        f'export PYTHONPATH; exec {python} "$@"',
    )
    script.write_text("\n".join(lines) + "\n")  # each time: the folder may have been moved
    script.chmod(0o755)
    return script


def _requirements() -> list[str]:
    return ["-e", f"{ROOT}[spark]", f"pyspark=={SPARK_VERSION}", "psutil"]


def _fetch(artifact: str, folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise Missing("mvn is not installed")
    command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}"]
    _run([*command, f"-DoutputDirectory={folder}", "-Dtransitive=false"])


def _uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise Missing("uv is not installed")
    return found


def _version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DOWNLOAD_S_MAX, check=False, cwd=ROOT
    )
    if done.returncode != 0:
        what = (done.stdout + done.stderr).strip()[-300:]
        raise Missing(f"{command[0]} {command[1]} failed: {what}")
