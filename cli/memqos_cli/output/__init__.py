"""Renderers: a result to text. They decide nothing."""
