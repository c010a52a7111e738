"""Speed on this machine: contestants take turns in one run, results are ratios."""
