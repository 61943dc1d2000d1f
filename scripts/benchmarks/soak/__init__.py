"""Whether anything grows in a pool that is used for a long time."""
