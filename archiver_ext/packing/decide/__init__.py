"""Decides the action for each module and file: intern, extern, mock."""
