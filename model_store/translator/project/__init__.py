"""A translator: an encoder-decoder that generates one token after another."""
