"""Tables of names, written as running text; nouns with their numbers."""


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def plural(noun: str) -> str:
    """Several of what a regular noun names."""
    return noun + ("es" if noun.endswith(("ch", "s", "x")) else "s")


def counted(number: int, noun: str) -> str:
    """`1 fix`, `2 fixes`."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"
