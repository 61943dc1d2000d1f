"""An image classifier: a small convolutional net."""
