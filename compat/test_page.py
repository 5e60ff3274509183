"""The page on compatibility says what the allow-list requires, and nothing else."""

from fnmatch import fnmatch

from compat import allow_list, page, toolchains


def test_listed_steps_of_clients_exist() -> None:
    listed = allow_list.load()
    for client in toolchains.DRIVERS:
        assert set(listed.get(client, ())) <= set(page.STEP_NAMES)


def test_allow_list_is_written_as_it_is_dumped() -> None:
    assert allow_list.PATH.read_text() == allow_list.dump(allow_list.load())


def test_every_step_belongs_to_a_capability() -> None:
    for step in page.STEP_NAMES:
        titles = [title for title, pattern in page.CAPABILITIES if fnmatch(step, pattern)]
        assert len(titles) == 1, (step, titles)
