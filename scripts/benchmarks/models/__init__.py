"""Whether every model packs, and answers from its archive as from its source."""
