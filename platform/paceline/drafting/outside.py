"""Drafters from outside the library: ``package.module:Class`` in the configuration.

The class is imported in the process that drafts, so its package must be installed there, or lie on its PYTHONPATH.
See docs/guides/write-a-drafter.md.
"""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any, cast

from paceline.drafting.drafter import Drafter
from paceline.drafting.host import DrafterHost
from paceline.drafting.matching import DrafterFacts
from paceline.errors import ConfigError

_HOST = "host"  # a constructor that has a parameter of this name is given the facts of its place
_METHODS = ("open", "request", "collect", "close")
_PROPERTIES = ("method", "live", "detail", "num_pending")
_GUIDE = "docs/guides/write-a-drafter.md shows one that works"


def load_outside(name: str) -> type:
    """The class called ``name``, as package.module:Class.

    Raises ConfigError where it cannot be imported, or is no class.
    """
    module_name, _, class_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"The drafter '{name}' cannot be imported: {error}. Install its package where it drafts, or put the folder "
            "that holds it on PYTHONPATH."
        ) from error
    except Exception as error:
        raise ConfigError(f"The drafter '{name}' cannot be imported: {_said(error)}.") from error
    found = getattr(module, class_name, None)
    if found is None:
        raise ConfigError(f"The drafter '{name}' does not exist: module '{module_name}' has no '{class_name}'.")
    if not isinstance(found, type):
        raise ConfigError(f"The drafter '{name}' is no class. Name a class; {_GUIDE}.")
    return found


def make_outside(name: str, options: Mapping[str, Any], host: DrafterHost) -> Drafter:
    """An instance of the class called ``name``, made with ``options`` as keywords, and with ``host`` if it asks for it.

    Raises ConfigError where it cannot be made, or is no drafter.
    """
    made = load_outside(name)
    keywords = dict(options)
    if _asks_for_host(made):
        if _HOST in keywords:
            raise ConfigError(f"The drafter '{name}' is given '{_HOST}' by the library; take it out of its options.")
        keywords[_HOST] = host
    try:
        drafter = made(**keywords)
        faults = missing_parts(drafter)
    except Exception as error:
        given = ", ".join(options) or "none"
        raise ConfigError(f"The drafter '{name}' could not be made (options: {given}): {_said(error)}.") from error
    if faults:
        raise ConfigError(f"The drafter '{name}' lacks {', '.join(faults)}. {_GUIDE.capitalize()}.")
    return cast("Drafter", drafter)


def missing_parts(drafter: object) -> list[str]:
    """What an object lacks of a `Drafter`, by name."""
    methods = [f"{name}()" for name in _METHODS if not callable(getattr(drafter, name, None))]
    missing = methods + [name for name in _PROPERTIES if not hasattr(drafter, name)]
    named = getattr(drafter, "method", "")
    return missing if "method" in missing or (isinstance(named, str) and named) else ["a name in method", *missing]


def facts_of(drafter: Drafter, group: str) -> DrafterFacts:
    """What a drafter says about itself; attributes that it does not have say nothing."""
    return DrafterFacts(
        method=drafter.method,
        group=group,
        vocabulary=getattr(drafter, "vocabulary", None),
        context_length=getattr(drafter, "context_length", None),
        weights_version=getattr(drafter, "weights_version", ""),
        feature=getattr(drafter, "feature", None),
    )


def _asks_for_host(made: type) -> bool:
    try:
        return _HOST in inspect.signature(made).parameters
    except ValueError:  # a class without a signature, such as one written in C
        return False


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(". ")
