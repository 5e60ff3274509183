"""What a person is told when a request cannot be understood."""


class BadRequestError(Exception):
    """A request that cannot be understood; the sentence is shown."""
