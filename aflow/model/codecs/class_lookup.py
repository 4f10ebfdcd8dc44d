"""The lookup of a class by a name that a file contains, which runs no code.

A name in stored bytes is data of unknown origin. It selects among the classes that the running program has imported
already, and does nothing else: no module is imported, no attribute hook is called (``__getattr__`` of a module may
import, a lazy module imports at the first attribute, a metaclass or a descriptor may do anything). The lookup therefore
reads the dictionaries of modules and classes directly. See decision 024.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, Final, cast

from aflow.model.codecs.base import CodecError

#: The slots of ``module.__dict__`` and ``cls.__dict__``, which a subclass or a metaclass cannot replace.
_MODULE_DICT: Final[Any] = vars(ModuleType)["__dict__"]
_CLASS_DICT: Final[Any] = vars(type)["__dict__"]


def known_class(name: str) -> type:
    """Return the class of a stored name, ``module:qualified name``, from the modules that are imported already.

    Raises ``CodecError`` if the module is not imported, or has no class of that name.
    """
    module_name, _, qualified = name.partition(":")
    module = sys.modules.get(module_name)
    if module is None:
        raise CodecError(
            f"the stored records are of class {name}, and module {module_name!r} is not imported in this process. "
            f"A restore imports nothing that stored bytes name: if the class is yours, import its module in the "
            f"program before the job starts"
        )
    found: object = module
    for part in qualified.split("."):
        found = _members(found).get(part)
    if not _is_class(found):
        raise CodecError(f"the stored records are of {name}, which is no class in this process")
    kind = cast("type", found)
    if (kind.__module__, kind.__qualname__) != (module_name, qualified):
        raise CodecError(
            f"the stored records are of class {name}, and that name refers to "
            f"{kind.__module__}:{kind.__qualname__} in this process"
        )
    return kind


def _members(owner: object) -> dict[str, object]:
    if _is_class(owner):
        return cast("dict[str, object]", _CLASS_DICT.__get__(owner))
    # Not isinstance(), which asks the object for its __class__.
    if issubclass(type(owner), ModuleType):
        return cast("dict[str, object]", _MODULE_DICT.__get__(owner))
    return {}


def _is_class(found: object) -> bool:
    return issubclass(type(found), type)
