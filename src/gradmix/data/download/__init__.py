"""Data sets from the Hugging Face Hub: resumable, and compared with the Hub's own checksums."""

from .dataset_address import DatasetAddress, parse_dataset_address
from .get_data import get_data

__all__ = ["DatasetAddress", "get_data", "parse_dataset_address"]
