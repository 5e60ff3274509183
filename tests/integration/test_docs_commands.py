"""Every command and snippet of the README and of docs/cli.md, run as a new user would."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Cluster
from support.cli_runs import free_port

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/cli.md")
SECONDS_MAX = 60

# Why a line is not run here. Whatever is not listed is.
NOT_RUN = {
    "git clone": "the repository is here",
    "make up": "installs this repository, and is what CI's first step does",
    "ottla up": "stays in the foreground; tests/integration/test_cli_process.py starts it",
}
# Lines that stay in the foreground until they are stopped, and what they say when they are ready.
SERVERS = {"ottla server": "is ready at"}

# What a page takes for granted at this place.
PREPARED = {
    "ottla consume orders --exit -o jsonl": ["ottla topic create copy -p 3"],
    "ottla group reset billing --all-topics": [
        "ottla group reset billing --topic orders --to-latest --execute"
    ],
}

# Apache Kafka's own config/server.properties, but for the ports and the directory.
STOCK_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:{controller_port}
listeners=PLAINTEXT://:{port},CONTROLLER://:{controller_port}
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller_port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={directory}/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


@pytest.fixture
def home(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new user's directory: the command installed, a broker running, a properties file."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    properties = STOCK_PROPERTIES.format(
        port=free_port(), controller_port=free_port(), directory=tmp_path
    )
    (tmp_path / "server.properties").write_text(properties)
    monkeypatch.setenv("PATH", f"{sys.prefix}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("OTTLA_BROKERS", cluster.bootstrap_servers)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def run(line: str, home: Path, cluster: Cluster) -> None:
    line = line.replace("127.0.0.1:9092", cluster.bootstrap_servers)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        cwd=home,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, (line, done.stderr.decode())


def serve(line: str, ready: str, home: Path) -> None:
    """Start it, wait until it is ready, and stop it as Ctrl-C does."""
    server = subprocess.Popen(line.split(), cwd=home, stderr=subprocess.PIPE)
    assert server.stderr is not None
    said = []
    try:
        for text in server.stderr:
            said.append(text.decode())
            if ready in said[-1]:
                break
    finally:
        server.send_signal(signal.SIGTERM)
        _, rest = server.communicate(timeout=SECONDS_MAX)
    assert ready in said[-1], (said, rest)
    assert server.returncode == 0, (said, rest)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_does_its_work(page: str, home: Path, cluster: Cluster) -> None:
    ran = 0
    for line in "".join(blocks(page, "sh")).splitlines():
        if any(line.startswith(start) for start in NOT_RUN):
            continue
        if line.startswith("kcat") and shutil.which("kcat") is None:
            continue
        for start, preparations in PREPARED.items():
            if line.startswith(start):
                for preparation in preparations:
                    run(preparation, home, cluster)
        served = [ready for start, ready in SERVERS.items() if line.startswith(start)]
        if served:
            serve(line, served[0], home)
        else:
            run(line, home, cluster)
        ran += 1
    assert ran >= 3


@pytest.mark.parametrize(
    "snippet", [snippet for page in PAGES for snippet in blocks(page, "python")]
)
def test_every_snippet_of_a_page_runs(snippet: str, home: Path) -> None:
    path = home / "test_snippet.py"
    path.write_text(snippet)
    is_test = "def test_" in snippet
    command = [
        sys.executable,
        *(["-m", "pytest", "-q", "-p", "no:cacheprovider"] if is_test else []),
    ]
    done = subprocess.run(
        [*command, str(path)], cwd=home, capture_output=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, (done.stdout.decode(), done.stderr.decode())
