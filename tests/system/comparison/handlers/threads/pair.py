import dataclasses


@dataclasses.dataclass(frozen=True)
class Pair:
    first: int
    second: str
