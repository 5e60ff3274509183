"""How a server ends: asked once, asked twice, failed, or never started."""

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.main import run

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
    args = ["storage", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(properties)]
    assert run(["storage", "info", "-c", str(properties)]) == 3
    assert run([*args, "--standalone"]) == 0
    assert run(["storage", "info", "-c", str(properties)]) == 0
    assert run(args) == 1
    assert run([*args, "--ignore-formatted"]) == 0
    assert run([*args[:3], "AnotherClusterIdOf22Cha", *args[4:], "--ignore-formatted"]) == 1
    assert "belongs to cluster" in capsys.readouterr().err
    assert run([*args, "--feature", "no.such=1"]) == 1
