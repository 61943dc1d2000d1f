"""A text classifier: BERT with a tokenizer of its own."""
