"""A person before any background, cut out: background matting."""
