"""AUC, AUPRC, F1 and accuracy from logits and labels."""
