"""The same models in several frameworks, over HTTP."""
