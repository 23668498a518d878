"""How rows become batches and batches become rows again."""
