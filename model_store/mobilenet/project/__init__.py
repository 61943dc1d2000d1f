"""An image classifier: MobileNetV3."""
