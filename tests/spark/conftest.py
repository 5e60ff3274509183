"""One Spark for all these tests, as it takes seconds to start; without Java they are skipped."""

from typing import Any

import pytest

from ottla.spark.pipelines.session import JavaMissing, check_java
from support.spark_runs import spark_session


@pytest.fixture(scope="session", autouse=True)
def java() -> None:
    try:
        check_java()
    except JavaMissing as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def spark(java: None) -> Any:
    return spark_session()
