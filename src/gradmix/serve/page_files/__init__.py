"""The files of the page that are its own; the others are in gradmix.export.web."""
