"""The evaluation loop on a GPU: pixels are copied in, counts and logits are copied out."""
