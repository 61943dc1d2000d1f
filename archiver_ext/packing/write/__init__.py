"""From decisions to the archive's file: pickles, sources, manifest."""
