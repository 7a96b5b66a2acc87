"""Peers' configurations to vdev's: text in, texts out, with what could not be said.

    draft        what a text holds, unwrapped from Kubernetes objects; a vdev file in the making, and its text
    go_patterns  Go's globs and regular expressions to vdev's patterns
    forms        which module reads what, told by the content
    one module for each form

Nothing here reads files or looks at a node. Every text that comes out is one that vdev takes.
"""

from .forms import FORMS, Imported, Wishes, imported, recognised

__all__ = ["FORMS", "Imported", "Wishes", "imported", "recognised"]
