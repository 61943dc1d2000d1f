"""Writes the archive's file: pickles, sources, manifest."""
