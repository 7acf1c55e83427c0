"""Conversations with a language model that is compiled with its tokenizer."""

from nnefc.chat.conversation import Conversation
from nnefc.chat.grammar import Grammars
from nnefc.chat.prompts import ChatError
from nnefc.chat.template import TemplateError

__all__ = ["ChatError", "Conversation", "Grammars", "TemplateError"]
