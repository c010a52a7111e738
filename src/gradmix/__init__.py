"""gradmix: image classifiers that know what they do not know."""

__version__ = "0.1.0"
