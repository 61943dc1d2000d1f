"""Faces with other attributes: StarGAN."""
