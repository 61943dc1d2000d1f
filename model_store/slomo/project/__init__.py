"""Frames between two frames of a film: Super SloMo."""
