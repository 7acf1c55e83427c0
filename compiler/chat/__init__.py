"""Conversations with a language model that is compiled with its tokenizer."""

from nnefc.chat.conversation import ChatError, Conversation
from nnefc.chat.template import TemplateError

__all__ = ["ChatError", "Conversation", "TemplateError"]
