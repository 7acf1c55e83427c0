"""Conversations with language models, and embeddings of texts, by libraries that contain their tokenizers."""

from nnefc.chat.conversation import Conversation
from nnefc.chat.encoder import Encoder
from nnefc.chat.grammar import Grammars
from nnefc.chat.prompts import ChatError
from nnefc.chat.template import TemplateError

__all__ = ["ChatError", "Conversation", "Encoder", "Grammars", "TemplateError"]
