"""Which source wins, and that the file of contexts survives a round trip."""

import itertools
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.errors import CliError, ExitCode
from ottla.cli.settings import (
    DEFAULT_BROKERS,
    Choice,
    Context,
    Contexts,
    load,
    resolve,
    save,
)

UNSET = Choice(None, is_flag=False)


def resolved_brokers(
    *, brokers: Choice = UNSET, context: Choice = UNSET, current: str | None = None
) -> str:
    contexts = Contexts(current, {"a": Context("in-a:1"), "b": Context("in-b:1")})
    return resolve(contexts, brokers=brokers, context=context, overrides={}, timeout_s=1.0).brokers


def test_each_source_yields_to_the_one_before_it() -> None:
    sources = [
        ("flag:1", {"brokers": Choice("flag:1", is_flag=True)}),
        ("in-a:1", {"context": Choice("a", is_flag=True)}),
        ("env:1", {"brokers": Choice("env:1", is_flag=False)}),
        ("in-a:1", {"context": Choice("a", is_flag=False)}),
        ("in-b:1", {"current": "b"}),
        (DEFAULT_BROKERS, {}),
    ]
    for strong, weak in itertools.combinations(sources, 2):
        given_both = {**weak[1], **strong[1]}
        assert resolved_brokers(**given_both) == strong[0], (strong, weak)  # type: ignore[arg-type]


def test_a_client_setting_on_the_command_line_beats_the_context() -> None:
    contexts = Contexts("a", {"a": Context("x:1", {"acks": "1", "security.protocol": "ssl"})})
    found = resolve(
        contexts, brokers=UNSET, context=UNSET, overrides={"acks": "all"}, timeout_s=3.0
    )
    assert found.client == {
        "bootstrap.servers": "x:1",
        "acks": "all",
        "security.protocol": "ssl",
    }


SECRET = {"sasl.password": "hush"}
CONTEXTS = Contexts("mine", {"mine": Context("mine:1", SECRET), "other": Context("other:1")})


@pytest.mark.parametrize(
    ("brokers", "context", "is_told"),
    [
        (UNSET, UNSET, True),
        (UNSET, Choice("mine", is_flag=True), True),
        (UNSET, Choice("mine", is_flag=False), True),
        (Choice("stranger:1", is_flag=True), Choice("mine", is_flag=True), True),
        (Choice("stranger:1", is_flag=False), Choice("mine", is_flag=True), True),
        (Choice("stranger:1", is_flag=True), UNSET, False),
        (Choice("stranger:1", is_flag=False), UNSET, False),
        (Choice("stranger:1", is_flag=True), Choice("mine", is_flag=False), False),
        (UNSET, Choice("other", is_flag=True), False),
    ],
)
def test_credentials_go_to_the_brokers_of_their_context_alone(
    brokers: Choice, context: Choice, is_told: bool
) -> None:
    found = resolve(CONTEXTS, brokers=brokers, context=context, overrides={}, timeout_s=1.0)
    assert ("sasl.password" in found.client) is is_told


@pytest.mark.parametrize("is_flag", [True, False])
def test_a_current_context_that_is_gone_matters_only_where_it_is_used(is_flag: bool) -> None:
    contexts = Contexts("gone")
    brokers = Choice("here:1", is_flag=is_flag)
    found = resolve(contexts, brokers=brokers, context=UNSET, overrides={}, timeout_s=1.0)
    assert found.brokers == "here:1"
    with pytest.raises(CliError, match="no context 'gone'"):
        resolve(contexts, brokers=UNSET, context=UNSET, overrides={}, timeout_s=1.0)


def test_an_unknown_context_is_not_found_and_lists_the_known() -> None:
    with pytest.raises(CliError, match="known: a, b") as raised:
        resolved_brokers(context=Choice("c", is_flag=True))
    assert raised.value.exit_code is ExitCode.NOT_FOUND


texts = st.text(st.characters(codec="utf-8"), max_size=12)


@given(
    st.dictionaries(
        texts, st.builds(Context, texts, st.dictionaries(texts, texts, max_size=3)), max_size=3
    ),
    st.none() | texts,
)
def test_contexts_survive_the_file(
    tmp_path_factory: pytest.TempPathFactory, named: dict[str, Context], current: str | None
) -> None:
    path = tmp_path_factory.mktemp("contexts") / "config.toml"
    save(path, Contexts(current, named))
    assert load(path) == Contexts(current, named)


def test_the_file_may_hold_passwords_so_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "config.toml"
    save(path, Contexts())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content",
    [
        b"nonsense",
        b"[contexts.a]\n",
        b"[contexts]\na = 3\n",
        b"contexts = 3\n",
        b"current = 3\n",
        b"[contexts.a]\nbrokers = 'x:1'\nclient = 'x'\n",
        b"current = '\xff'\n",
    ],
)
def test_a_broken_file_is_one_sentence_that_names_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(content)
    with pytest.raises(CliError, match=r"config\.toml"):
        load(path)
