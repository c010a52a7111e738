"""What training and searching would cost on other machines: arithmetic on counts (docs/scale.md)."""
