"""The side modules' own utils."""

WORD = "utils of side_modules"
