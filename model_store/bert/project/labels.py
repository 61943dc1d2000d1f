"""What the text classifier answers."""

LABELS = ("praise", "complaint", "question", "small talk")
