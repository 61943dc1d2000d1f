"""What the image classifier answers."""

LABELS = ("bird", "boat", "bridge", "car", "cat", "dog", "flower", "house", "mountain", "tree")
