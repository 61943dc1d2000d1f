"""What a stroke is: numbers from 0 to 1."""

from __future__ import annotations

SHAPE = 10  # three points of a Bézier curve, and the brush's radius and opacity at both ends
COLOUR = 3
STROKE = SHAPE + COLOUR
BUNDLE = 5  # strokes that are chosen at once
ACTION = BUNDLE * STROKE
