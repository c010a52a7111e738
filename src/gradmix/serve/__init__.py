"""A model over HTTP: an API and a page, batched, with limits, asking nothing of any other host."""
