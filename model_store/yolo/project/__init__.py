"""Objects in images, found at one look: YOLOv3."""
