"""Converts configurations of other plugins to vdev's: text in, texts out, with warnings for everything that is omitted.

    draft        a vdev file in the making; the sources in a text, unwrapped from Kubernetes objects
    go_patterns  Go's globs and regular expressions as vdev's patterns
    forms        detects the form of a text, and calls its module; each form has a module

Nothing here reads files or looks at a node. All results are valid vdev files.
"""

from .forms import FORMS, Imported, ImportOptions, imported, recognized

__all__ = ["FORMS", "ImportOptions", "Imported", "imported", "recognized"]
