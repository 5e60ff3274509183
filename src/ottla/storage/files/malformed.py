"""The one way in which the small files of a log directory refuse their content. Pure."""


class MalformedFileError(Exception):
    """A small file of a log directory does not say what it should; its directory is unusable."""

    def __init__(self, path: str, problem: str, *, line: int | None = None) -> None:
        where = path if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {problem}")
        self.path = path
        self.line = line


def text_of(data: bytes, path: str) -> str:
    """The file as text, which is UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedFileError(path, f"is not UTF-8: {error}") from error


def parse_int(text: str, path: str, *, line: int) -> int:
    """A decimal integer as Java writes one."""
    digits = text[1:] if text.startswith("-") else text
    # int() would also take blanks, underscores, a plus sign and other alphabets' digits.
    if not (digits.isascii() and digits.isdigit()):
        raise MalformedFileError(path, f"{text!r} is not an integer", line=line)
    return int(text)
