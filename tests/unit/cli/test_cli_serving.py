"""How a server ends: asked once, asked twice, failed, or never started."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.cli.main import run
from ottla.runtime.real import real_runtime

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
PROPERTIES = (
    "process.roles=broker,controller\nnode.id=7\ncontroller.listener.names=CONTROLLER\n"
    "controller.quorum.bootstrap.servers=127.0.0.1:1\n"
    "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
)

# A broker that sends its own process the signals, so that no test waits for one.
FAKE = """
import asyncio, os, signal, sys
import ottla.server.broker
from ottla.cli.main import run

class Broker:
    http_address = None
    listeners = {"PLAINTEXT": ("127.0.0.1", 1)}

    def __init__(self, runtime, config, *, http_address, on_fatal):
        self.on_fatal = on_fatal

    async def start(self):
        %(start)s

    async def stop(self):
        %(stop)s

ottla.server.broker.Broker = Broker
sys.exit(run(["server", sys.argv[1]]))
"""
SIGNAL = "os.kill(os.getpid(), signal.SIGTERM)"


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(f"{PROPERTIES}log.dirs={tmp_path}/logs\n")
    return path


def served(properties: Path, *, start: str, stop: str = "pass") -> tuple[int, str]:
    code = FAKE % {"start": start, "stop": stop}
    done = subprocess.run(
        [sys.executable, "-c", code, str(properties)], capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stderr


def test_one_signal_is_a_clean_stop(properties: Path) -> None:
    code, err = served(properties, start=SIGNAL)
    assert code == 0
    assert err.splitlines()[0] == "Broker 7 is ready at PLAINTEXT://127.0.0.1:1."


def test_a_second_signal_gives_up_on_the_clean_stop(properties: Path) -> None:
    code, err = served(properties, start=SIGNAL, stop=f"{SIGNAL}; await asyncio.sleep(1000)")
    assert code == 1
    assert err.splitlines()[-1].startswith("Error: Stopped in the middle")
    assert "Traceback" not in err


def test_a_broker_that_cannot_go_on_says_why(properties: Path) -> None:
    code, err = served(properties, start='self.on_fatal(OSError("the last disk is gone"))')
    assert code == 1
    assert err.splitlines()[-1] == "Error: The broker cannot go on: the last disk is gone."


def test_a_failed_start_is_one_sentence(properties: Path) -> None:
    code, err = served(properties, start='raise PermissionError(13, "Permission denied", "/data")')
    assert (code, err) == (1, "Error: /data: Permission denied.\n")


def damage_voters(directory: Path) -> None:
    """As a release left it that did not insist on voters when it formatted."""
    (directory / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint").unlink()


def damage_snapshot(directory: Path) -> None:
    path = directory / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    path.write_bytes(path.read_bytes()[:40])


def damage_bootstrap(directory: Path) -> None:
    (directory / "bootstrap.checkpoint").write_bytes(b"not a snapshot")


def damage_election(directory: Path) -> None:
    (directory / "__cluster_metadata-0" / "quorum-state").write_text("{}")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (damage_voters, "controller.quorum.voters names none"),
        (damage_snapshot, "0000000000.checkpoint"),
        (damage_bootstrap, "bootstrap.checkpoint"),
        (damage_election, "quorum-state cannot be read"),
    ],
)
def test_a_metadata_log_that_cannot_be_used_is_one_sentence(
    damage: Callable[[Path], None],
    reason: str,
    properties: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["storage", "format", "-t", CLUSTER_ID, "-c", str(properties)]) == 0
    damage(properties.parent / "logs")
    capsys.readouterr()
    assert run(["server", str(properties)]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert reason in err
    assert "defect" not in err


def test_a_metadata_directory_in_use_is_one_sentence(
    properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = properties.parent / "metadata"
    with properties.open("a") as file:
        file.write(f"metadata.log.dir={directory}\n")
    assert run(["storage", "format", "-t", CLUSTER_ID, "-c", str(properties)]) == 0
    capsys.readouterr()
    lock = real_runtime().disk.lock(f"{directory}/.lock")
    try:
        assert run(["server", str(properties)]) == 1
    finally:
        lock.release()
    assert capsys.readouterr().err == f"Error: {directory} is in use by another process.\n"


def voters_of(properties: Path) -> bool:
    snapshot = "logs/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
    return (properties.parent / snapshot).exists()


def test_the_only_controller_of_a_file_becomes_the_only_voter(
    properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["storage", "format", "-t", CLUSTER_ID, "-c", str(properties)]) == 0
    assert voters_of(properties)
    assert "Node 7 is the only voter" in capsys.readouterr().err


def test_voters_of_the_file_are_not_written_down_a_second_time(properties: Path) -> None:
    with properties.open("a") as file:
        file.write("controller.quorum.voters=7@127.0.0.1:1\n")
    assert run(["storage", "format", "-t", CLUSTER_ID, "-c", str(properties)]) == 0
    assert not voters_of(properties)


def test_one_of_several_controllers_stands_alone_only_when_asked(
    properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = properties.read_text().replace("servers=127.0.0.1:1", "servers=a:1,b:1")
    properties.write_text(text)
    args = ["storage", "format", "-t", CLUSTER_ID, "-c", str(properties)]
    assert run(args) == 1
    assert "--standalone" in capsys.readouterr().err
    assert not (properties.parent / "logs").exists()
    assert run([*args, "--standalone"]) == 0
    assert voters_of(properties)


@pytest.mark.parametrize("command", [["storage", "info"], ["storage", "format", "-t", "abc"]])
def test_a_damaged_directory_is_one_sentence(
    command: list[str], properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = properties.parent / "logs"
    directory.mkdir()
    (directory / "meta.properties").write_text("version=abc\n")
    assert run([*command, "-c", str(properties)]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "meta.properties" in err
    assert "defect" not in err


def test_formatting_twice_is_refused_or_ignored(
    properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["storage", "format", "-t", CLUSTER_ID, "-c", str(properties)]
    assert run(["storage", "info", "-c", str(properties)]) == 3
    assert run([*args, "--standalone"]) == 0
    assert run(["storage", "info", "-c", str(properties)]) == 0
    assert run(args) == 1
    assert run([*args, "--ignore-formatted"]) == 0
    assert run([*args[:3], "AnotherClusterIdOf22Cha", *args[4:], "--ignore-formatted"]) == 1
    assert "belongs to cluster" in capsys.readouterr().err
    assert run([*args, "--feature", "no.such=1"]) == 1
