"""Upload a model to the Hugging Face Hub, with a card that describes it."""

from .hub_push import PushResult, push_model, push_recognizer
from .model_card import make_model_card

__all__ = ["PushResult", "make_model_card", "push_model", "push_recognizer"]
