"""Benchmarks: a folder for each, which scripts/bench runs, and `shared` for what several of them need."""
