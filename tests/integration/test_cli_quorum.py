"""`ottla quorum` and `ottla broker describe`, over the wire client."""

from support.cli_runs import Cli, free_port

STATUS = (
    *("ClusterId", "LeaderId", "LeaderEpoch", "HighWatermark", "MaxFollowerLag"),
    *("MaxFollowerLagTimeMs", "CurrentVoters", "CurrentObservers"),
)
REPLICATION = (
    *("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp"),
    *("LastCaughtUpTimestamp", "Status"),
)


def test_status_has_the_fields_of_kafkas_tool(cli: Cli) -> None:
    lines = cli("quorum", "describe", "--status").lines
    found = dict(line.split(maxsplit=1) for line in lines)
    assert tuple(found) == STATUS
    assert found["LeaderId"] == found["CurrentVoters"] == "1"
    assert found["MaxFollowerLag"] == "0"


def test_replication_has_the_columns_of_kafkas_tool(cli: Cli) -> None:
    header, leader = cli("quorum", "describe", "--replication").lines[:2]
    assert tuple(header.split()) == REPLICATION
    row = dict(zip(REPLICATION, leader.split(), strict=True))
    assert (row["NodeId"], row["Lag"], row["Status"]) == ("1", "0", "Leader")
    assert len(row["DirectoryId"]) == 22


def test_the_quorum_moves_on_with_the_cluster(cli: Cli, topic: str) -> None:
    before = cli("quorum", "describe", "-o", "json").json
    assert cli("topic", "alter", topic, "-c", "retention.ms=1234").code == 0
    after = cli("quorum", "describe", "-o", "json").json
    assert after["high_watermark"] > before["high_watermark"]
    assert after["leader_epoch"] == before["leader_epoch"]
    assert after["cluster_id"] == cli("cluster", "describe", "-o", "json").json["cluster_id"]
    (replica,) = [one for one in after["replicas"] if one["status"] == "Leader"]
    assert replica["log_end_offset"] >= after["high_watermark"]
    assert replica["endpoints"][0].startswith("CONTROLLER://")


def test_nobody_there_is_exit_code_5(cli: Cli) -> None:
    done = cli("quorum", "describe", "-b", f"127.0.0.1:{free_port()}", "--timeout", "1")
    assert done.code == 5
    assert "Connection refused" in done.err
    assert done.err.count("\n") == 1


def test_bad_client_settings_are_a_usage_error(cli: Cli) -> None:
    done = cli("quorum", "describe", "-X", "security.protocol=carrier-pigeon")
    assert done.code == 2
    assert "security.protocol" in done.err
