"""The embedded demo: generated chest phantoms, forty radiographs and a small model (DATA_CARD.md).

`training/` has the scripts that made the model. They run in a checkout and are not installed.
"""
