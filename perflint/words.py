"""Tables of names, written as running text."""


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())
