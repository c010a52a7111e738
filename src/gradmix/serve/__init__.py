"""Serve a model over HTTP: an API and a page, batched, with limits, sending nothing to any other host."""
