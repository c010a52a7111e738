"""An experiment's results as tables, figures and one page, next to the paper's numbers."""
