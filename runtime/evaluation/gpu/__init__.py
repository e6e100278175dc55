"""The evaluation loop on a GPU: pixels go in, counts and logits come out."""
