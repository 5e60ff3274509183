"""The same cases by Spark's own connector and by Ottla's: running them, and comparing outcomes.

They run in the Python that has both (bench/spark_peer.py makes it where it can), in a script that
leaves its outcomes in a file: by case and format, what came out, or the words of the refusal.
"""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import spark_peer
from bench.brokers import ROOT, Missing

Outcome = dict[str, Any]
FORMATS = ("kafka", "ottla")


def run_peers(script: Path, bootstrap: str, folder: Path) -> dict[str, dict[str, Outcome]]:
    """Run a script of cases; skip, by name, where Spark's connector cannot be had."""
    import pytest  # which the other Python lacks

    try:
        python, jars = spark_peer.prepare()
    except Missing as reason:
        pytest.skip(str(reason))
    result = folder / "outcomes.json"
    done = subprocess.run(
        [str(python), str(script), bootstrap, jars, str(result)],
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}:{ROOT}",
            "PYSPARK_PYTHON": str(spark_peer.worker_python(python)),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, dict[str, Outcome]] = json.loads(result.read_text())
    return found


def are_both_refused(theirs: Outcome, ours: Outcome) -> bool:
    """Whether there is nothing more to compare; an error if only one of them refuses."""
    if "refused" not in theirs and "refused" not in ours:
        return False
    assert "refused" in theirs, f"only Ottla refuses: {ours}"
    assert "refused" in ours, f"only Spark's connector refuses: {theirs}"
    return True


def outcome(case: Callable[..., Outcome], *arguments: Any) -> Outcome:
    """What came out, or the words of the refusal."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return case(*arguments)
    except (PySparkException, Py4JError) as error:
        return {"refused": f"{type(error).__name__}: {error}"}


def peer_session(jars: str) -> Any:
    """Spark with its own connector, and Ottla's found without being told."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config("spark.jars", jars).master("local[2]")
    for setting, value in (
        ("spark.ui.enabled", "false"),
        ("spark.driver.host", "127.0.0.1"),
        ("spark.driver.bindAddress", "127.0.0.1"),
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.ui.showConsoleProgress", "false"),
    ):
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark
