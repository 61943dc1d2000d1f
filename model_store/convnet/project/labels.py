"""What the image classifier answers."""

LABELS = ("stripes", "dots", "gradient", "noise", "plain")
