"""The site of the documentation: the repository's pages as they are, and references made from the code.

`make docs` builds it into build/site, without a warning or not at all. The source folder is the repository's root, so
that pages link to each other, to results and to examples as they do where they are read as Markdown.
"""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from pathlib import Path

from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

project = "nnefc"
copyright = "the authors of nnefc"  # Sphinx's name for it
version = release = version_of("nnefc")
html_title = f"nnefc {version}"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click", "c_header"]
root_doc = "docs/site/index"
include_patterns = [
    "*.md",
    "benchmarks/results/**.md",
    "docs/**",
    "examples/**.ipynb",
    "examples/**.md",
]
exclude_patterns = ["docs/site/extra/**", "docs/site/static/**"]
html_theme = "furo"
html_extra_path = ["extra"]
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False

# Pages are also read as they are: links between them name headings as other programs that show Markdown do.
myst_heading_anchors = 4

# Notebooks are kept without outputs, and run while the site is made; a cell that fails is an error.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_execution_show_tb = True

myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header"]  # a page may begin below its first heading
highlight_language = "none"

# Docstrings name code between single backticks, and arguments as napoleon's style of Google has them.
default_role = "code"
maximum_signature_line_length = 80
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_class_signature = "separated"


MEASURED = "benchmarks/results/"
"""Pages that are written whole when they are measured, and never edited: a link of theirs to what has moved is text."""


class FoldersWithoutPages(SphinxPostTransform):
    """Makes a link to a folder of the repository one to its README, if that is a page of the site, or else text.

    Runs before the links are resolved; what leads nowhere is left for a warning.
    """

    default_priority = 8

    def run(self, **_: object) -> None:
        for node in list(self.document.findall(pending_xref)):
            if node.get("reftype") != "myst" or node.get("refdomain") == "doc":
                continue
            folder = (ROOT / self.env.docname).parent / str(node["reftarget"])
            if not folder.is_dir():
                if self.env.docname.startswith(MEASURED) and "/" in str(node["reftarget"]):
                    node.replace_self(node.children)
                continue
            page = f"{folder.resolve().relative_to(ROOT).as_posix()}/README"
            if page in self.env.found_docs:
                node["refdomain"] = "doc"
                node["reftarget"] = page
                node["reftargetid"] = None
            else:
                node.replace_self(node.children)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_post_transform(FoldersWithoutPages)
