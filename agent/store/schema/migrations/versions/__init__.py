"""The revisions: one module for each, named by its number."""
