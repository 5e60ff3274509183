"""Which program drives which client, and how it is built once into `.cache`.

Each function returns the command and the environment of one driver, or raises `Missing` with
the sentence that a skipped test shows. Downloads (npm packages, Go modules, jars) and builds
happen when they are not there yet or older than their sources.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.brokers import (
    CACHE,
    DOWNLOAD_S_MAX,
    KAFKA_VERSION,
    ROOT,
    Missing,
    built_once,
    java_command,
    kafka_jars,
)
from bench.brokers import quiet_environment as quiet_java

COMPAT = ROOT / "compat"


class Driver(NamedTuple):
    command: list[str]
    environment: dict[str, str]


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed")
    return found


def _build(command: list[str], *, cwd: Path, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_S_MAX,
        check=False,
    )
    if done.returncode != 0:
        tail = (done.stdout + done.stderr)[-800:]
        raise Missing(f"`{' '.join(command[:3])}` failed: {tail}")


def _is_older(built: Path, *sources: Path) -> bool:
    if not built.exists():
        return True
    return built.stat().st_mtime < max(source.stat().st_mtime for source in sources)


def _python(module: str) -> Driver:
    command = [sys.executable, "-m", f"compat.drivers.{module}"]
    return Driver(command, {**os.environ, "PYTHONPATH": str(ROOT)})


def _kcat(module: str) -> Driver:
    _program("kcat")
    return _python(module)


def go_environment() -> dict[str, str]:
    """Modules go into `.cache`, writable so that removing the folder removes them."""
    settings = {"GOMODCACHE": str(CACHE / "go-mod"), "GOFLAGS": "-modcacherw"}
    return {**os.environ, **settings}


def _franz_go(package: str, built_name: str) -> Driver:
    go = _program("go")
    source, built = COMPAT / "go", CACHE / "compat" / built_name
    with built_once("go"):
        if _is_older(built, source / package / "main.go", source / "go.mod"):
            built.parent.mkdir(parents=True, exist_ok=True)
            command = [go, "build", "-o", str(built), package]
            _build(command, cwd=source, environment=go_environment())
    return Driver([str(built)], dict(os.environ))


def _kafkajs(script: str) -> Driver:
    node, npm = _program("node"), _program("npm")
    source, folder = COMPAT / "node", CACHE / "node"
    modules = folder / "node_modules"
    with built_once("node"):
        if _is_older(modules / ".package-lock.json", source / "package-lock.json"):
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("package.json", "package-lock.json"):
                shutil.copyfile(source / name, folder / name)
            _build([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=folder)
    environment = {**os.environ, "OTTLA_NODE_MODULES": str(modules)}
    return Driver([node, str(source / script)], environment)


def compile_java(source: Path, *, classpath: str = "") -> Path:
    """The folder of the classes of one Java file, which needs Apache Kafka's jars."""
    javac, path = _program("javac"), f"{kafka_jars()}/*" + (f":{classpath}" if classpath else "")
    built = CACHE / "compat" / "java"
    with built_once("java"):
        if _is_older(built / f"{source.stem}.class", source):
            built.mkdir(parents=True, exist_ok=True)
            _build([javac, "-nowarn", "-cp", path, "-d", str(built), str(source)], cwd=ROOT)
    return built


def _java(main_class: str) -> Driver:
    built = compile_java(COMPAT / "java" / f"{main_class}.java")
    return Driver(java_command(main_class, classpath=str(built)), quiet_java())


def streams_connect_jars() -> Path:
    """The jars of Kafka Streams and Connect's file connectors, copied by Maven once."""
    kafka_jars()
    folder = CACHE / f"streams-connect-{KAFKA_VERSION}"
    with built_once(folder.name):
        return folder if folder.exists() else _fetch_streams_connect(folder)


def _fetch_streams_connect(folder: Path) -> Path:
    wanted = "kafka-streams,kafka-streams-examples,rocksdbjni,connect-file"
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    command = [_program("mvn"), "-q", "-B", "-f", str(COMPAT / "java" / "pom.xml")]
    command += ["dependency:copy-dependencies", f"-DincludeArtifactIds={wanted}"]
    try:
        _build([*command, f"-DoutputDirectory={partial}"], cwd=ROOT)
        partial.rename(folder)
    except Missing:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return folder


DRIVERS: dict[str, Callable[[], Driver]] = {
    "confluent-kafka": lambda: _python("confluent"),
    "aiokafka": lambda: _python("aio"),
    "kafka-python": lambda: _python("kafka_python"),
    "kcat": lambda: _kcat("kcat"),
    "franz-go": lambda: _franz_go(".", "franzgo"),
    "kafkajs": lambda: _kafkajs("driver.js"),
    "java": lambda: _java("CompatDriver"),
}
# Of the same names: the programs that perform compat/transactions.py.
TRANSACTION_DRIVERS: dict[str, Callable[[], Driver]] = {
    "confluent-kafka": lambda: _python("confluent_transactions"),
    "aiokafka": lambda: _python("aio_transactions"),
    "kafka-python": lambda: _python("kafka_python_transactions"),
    "franz-go": lambda: _franz_go("./transactions", "franzgo-transactions"),
    "kafkajs": lambda: _kafkajs("transactions.js"),
    "java": lambda: _java("TransactionDriver"),
}
# Of the same names: the programs that are members of the groups of compat/groups.py.
GROUP_DRIVERS: dict[str, Callable[[], Driver]] = {
    "confluent-kafka": lambda: _python("confluent_member"),
    "aiokafka": lambda: _python("aio_member"),
    "kafka-python": lambda: _python("kafka_python_member"),
    "kcat": lambda: _kcat("kcat_member"),
    "franz-go": lambda: _franz_go("./groups", "franzgo-groups"),
    "kafkajs": lambda: _kafkajs("member.js"),
    "java": lambda: _java("GroupMember"),
}
