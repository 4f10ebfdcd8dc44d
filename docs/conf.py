"""The configuration of Sphinx for the guides and the API reference: ``make docs``."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

import aflow

project = "aflow"
copyright = "the aflow authors"
release = version = aflow.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["pictures"]
source_suffix = {".md": "markdown"}

#: A builtin such as ``bytes`` in an annotation is also the name of some attributes.
suppress_warnings = ["ref.python"]

#: Headings get anchors as on GitHub, so that links work in both places.
myst_heading_anchors = 4
myst_links_external_new_tab = False

autodoc_member_order = "groupwise"
#: Methods of base classes too, such as ``Stream.map_async``, but not those of Python's own classes.
autodoc_default_options = {
    "inherited-members": "object, BaseException, Exception, Enum, Generic, Protocol, tuple, dict, str, float, int"
}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True

html_theme = "alabaster"
html_theme_options = {"page_width": "1100px", "description": "Stream processing on asyncio"}
html_show_sourcelink = False
html_copy_source = False


#: The page that documents the names of the package itself.
_FRONT_DOOR = "reference/api/aflow"


def setup(app: Sphinx) -> None:
    app.connect("autodoc-skip-member", _skip_repeated_names)


def _skip_repeated_names(
    app: Sphinx, what: str, name: str, value: object, skip: bool, options: Any
) -> bool | None:
    """Skip names that ``aflow`` exports too on the pages of other modules, so that each has one description."""
    repeated = name in aflow.__all__ and getattr(aflow, name) is value
    return True if repeated and app.env.docname != _FRONT_DOOR else None
