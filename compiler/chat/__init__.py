"""Conversations with a language model, and embeddings of an encoder, that are compiled with their tokenizers."""

from nnefc.chat.conversation import Conversation
from nnefc.chat.encoder import Encoder
from nnefc.chat.grammar import Grammars
from nnefc.chat.prompts import ChatError
from nnefc.chat.template import TemplateError

__all__ = ["ChatError", "Conversation", "Encoder", "Grammars", "TemplateError"]
