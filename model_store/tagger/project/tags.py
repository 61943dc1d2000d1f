"""What the tagger answers for each word: outside, or beginning or inside of a name."""

KINDS = ("person", "place", "organisation", "other")
TAGS = ("O", *(f"{where}-{kind}" for kind in KINDS for where in ("B", "I")))


def may_follow(before: str, tag: str) -> bool:
    """Whether the scheme allows ``tag`` after ``before``: a name's inside follows the same name."""
    return not tag.startswith("I-") or before[2:] == tag[2:]
