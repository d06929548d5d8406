"""Strategies: how relevant each tool of a catalog is to a text. One module each, behind `base.Strategy`."""
