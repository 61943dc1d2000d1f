"""An agent that paints an image stroke by stroke: Learning to Paint."""
