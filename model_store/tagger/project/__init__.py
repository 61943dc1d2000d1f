"""A tagger: finds names in sentences, with a conditional random field."""
