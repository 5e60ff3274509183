"""What only a process can show of the command line: pipes, signals, stray output, serving."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Cluster

OTTLA = str(Path(sys.executable).with_name("ottla"))
SECONDS_MAX = 30
PROPERTIES = (
    "process.roles=broker,controller\nnode.id=7\ncontroller.listener.names=CONTROLLER\n"
    "controller.quorum.bootstrap.servers=127.0.0.1:1\n"
    "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        for topic in ("words", "pipe", "interrupt"):
            running.create_topic(topic)
        yield running


@pytest.fixture
def environment(cluster: Cluster, tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "OTTLA_BROKERS": cluster.bootstrap_servers,
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }


def ottla(
    *args: str, env: dict[str, str], stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [OTTLA, *args], env=env, input=stdin, capture_output=True, timeout=SECONDS_MAX, check=False
    )


def started(*args: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [OTTLA, *args],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=_listen_to_interrupts,
    )


def _listen_to_interrupts() -> None:
    """Shells tell what they start in the background to ignore Ctrl-C; the tests may be that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_reader_that_leaves_early_is_no_error(environment: dict[str, str]) -> None:
    # More than a pipe holds, for whoever has written all need not notice that nobody reads.
    lines = (b"x" * 99 + b"\n") * 10_000
    assert ottla("produce", "pipe", env=environment, stdin=lines).returncode == 0
    with started("consume", "pipe", env=environment) as consumer:
        assert consumer.stdout is not None
        consumer.stdout.readline()
        consumer.stdout.close()
        _, err = consumer.communicate(timeout=SECONDS_MAX)
    assert (consumer.returncode, err) == (0, b"")


def test_ctrl_c_is_exit_code_130_without_a_traceback(environment: dict[str, str]) -> None:
    assert ottla("produce", "interrupt", env=environment, stdin=b"y\n").returncode == 0
    with started("consume", "interrupt", env=environment) as consumer:
        assert consumer.stdout is not None
        consumer.stdout.readline()
        consumer.send_signal(signal.SIGINT)
        _, err = consumer.communicate(timeout=SECONDS_MAX)
    assert consumer.returncode == 130
    assert err.strip() == b""


def test_the_client_library_writes_nothing_of_its_own(environment: dict[str, str]) -> None:
    environment["OTTLA_BROKERS"] = "127.0.0.1:1"
    done = ottla("topic", "list", env=environment)
    assert done.returncode == 5
    assert done.stderr.count(b"\n") == 1
    done = ottla("topic", "list", "-X", "no.such.setting=1", env=environment)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1


def test_output_is_coloured_only_for_a_terminal(environment: dict[str, str]) -> None:
    assert b"\x1b[" not in ottla("topic", "list", env=environment).stdout


def test_the_shell_is_offered_live_topic_names(environment: dict[str, str]) -> None:
    environment |= {
        "_OTTLA_COMPLETE": "bash_complete",
        "COMP_WORDS": "ottla consume wo",
        "COMP_CWORD": "2",
    }
    assert ottla(env=environment).stdout == b"plain,words\n"
    environment["OTTLA_BROKERS"] = "127.0.0.1:1"
    done = ottla(env=environment)
    assert (done.stdout, done.stderr) == (b"\n", b"")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(shell: str, environment: dict[str, str]) -> None:
    done = ottla("completion", shell, env=environment)
    assert b"_OTTLA_COMPLETE" in done.stdout


def test_up_goes_from_nothing_to_records_and_keeps_them(environment: dict[str, str]) -> None:
    address = up_and_produce(environment)
    assert address
    up = started("up", "--port", "0", "--http-port", "0", env=environment)
    try:
        environment["OTTLA_BROKERS"] = announced(up)["Broker"]
        assert ottla("consume", "greetings", "-e", env=environment).stdout == b"hello\n"
    finally:
        stopped(up)


def test_up_fresh_forgets_what_was_kept(environment: dict[str, str]) -> None:
    up_and_produce(environment)
    up = started("up", "--port", "0", "--http-port", "0", "--fresh", env=environment)
    try:
        environment["OTTLA_BROKERS"] = announced(up)["Broker"]
        assert ottla("consume", "greetings", "-e", env=environment).returncode == 3
    finally:
        stopped(up)


def test_fresh_deletes_nothing_that_ottla_did_not_make(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").write_text("all of it")
    done = ottla("up", "--fresh", "--data", str(tmp_path), env=environment)
    assert done.returncode == 1
    assert (tmp_path / "thesis.txt").exists()


def test_a_taken_port_is_one_sentence(environment: dict[str, str], cluster: Cluster) -> None:
    port = cluster.bootstrap_servers.rpartition(":")[2]
    done = ottla("up", "--port", port, "--http-port", "0", env=environment)
    assert done.returncode == 1
    assert done.stderr.decode() == (
        f"Error: Port {port} is taken by another program; stop it or choose another port.\n"
    )


def test_two_brokers_cannot_share_a_directory(environment: dict[str, str]) -> None:
    first = started("up", "--port", "0", "--http-port", "0", env=environment)
    try:
        announced(first)
        second = ottla("up", "--port", "0", "--http-port", "0", env=environment)
        assert second.returncode == 1
        assert b"Another broker is using" in second.stderr
        assert second.stderr.count(b"\n") == 1
        fresh = ottla("up", "--port", "0", "--http-port", "0", "--fresh", env=environment)
        assert fresh.returncode == 1
    finally:
        stopped(first)


def test_several_brokers_are_refused_in_one_sentence(environment: dict[str, str]) -> None:
    done = ottla("up", "--brokers", "3", env=environment)
    assert done.returncode == 1
    assert b"one broker" in done.stderr


def test_a_server_runs_from_a_properties_file_and_stops_on_sigterm(
    environment: dict[str, str], tmp_path: Path
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(f"{PROPERTIES}log.dirs={tmp_path}/logs\n")
    unformatted = ottla("server", str(properties), env=environment)
    assert unformatted.returncode == 1
    assert unformatted.stderr.count(b"\n") == 1
    cluster_id = ottla("storage", "random-uuid", env=environment).stdout.decode().strip()
    done = ottla("storage", "format", "-t", cluster_id, "-c", str(properties), env=environment)
    assert done.returncode == 0
    server = started("server", str(properties), "--override", "num.partitions=5", env=environment)
    try:
        assert server.stderr is not None
        ready = server.stderr.readline().decode()
        found = re.fullmatch(r"Broker 7 is ready at PLAINTEXT://(127\.0\.0\.1:\d+).*\.\n", ready)
        assert found, ready
        environment["OTTLA_BROKERS"] = found[1]
        assert ottla("topic", "create", "made", env=environment).returncode == 0
        rows = ottla("topic", "offsets", "made", "-o", "jsonl", env=environment).stdout
        assert rows.count(b"\n") == 5
        described = ottla("cluster", "describe", "-o", "json", env=environment).stdout
        assert cluster_id.encode() in described
    finally:
        stopped(server)
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [("log.retentoin.ms=5\n", "log.retention.ms"), ("num.partitions=x\n", "num.partitions")],
)
def test_a_wrong_properties_file_is_one_sentence_that_names_it(
    environment: dict[str, str], tmp_path: Path, line: str, complaint: str
) -> None:
    properties = tmp_path / "wrong.properties"
    properties.write_text(PROPERTIES + line)
    done = ottla("server", str(properties), env=environment)
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert "wrong.properties" in done.stderr.decode()
    assert complaint in done.stderr.decode()


def announced(up: subprocess.Popen[bytes]) -> dict[str, str]:
    """The fields that `up` prints before the blank line."""
    fields = {}
    assert up.stdout is not None
    while line := up.stdout.readline().decode().strip():
        name, _, value = line.partition(" ")
        fields[name] = value.strip()
    assert fields, up.stderr and up.stderr.read()
    return fields


def stopped(process: subprocess.Popen[bytes]) -> None:
    """A clean stop, as a person or an init system asks for it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0


def up_and_produce(environment: dict[str, str]) -> str:
    up = started("up", "--port", "0", "--http-port", "0", env=environment)
    try:
        fields = announced(up)
        address = fields["Broker"]
        assert str(fields["Data"]).startswith(environment["XDG_DATA_HOME"])
        env = {**environment, "OTTLA_BROKERS": address}
        assert ottla("topic", "create", "greetings", env=env).returncode == 0
        assert ottla("produce", "greetings", env=env, stdin=b"hello\n").returncode == 0
    finally:
        stopped(up)
    return address
