"""Writes networks of any format as NNEF models."""

from nnefc.frontends.nnef.writing.files import check_output, document_text, write_files, write_model
from nnefc.frontends.nnef.writing.network import Written, written

__all__ = ["Written", "check_output", "document_text", "write_files", "write_model", "written"]
