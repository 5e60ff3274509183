"""Compiling loops over bytes: where the machine code is kept, and what plain Python cannot say.

Compiling takes seconds, so the machine code is kept in a cache beside these files, in the user's
cache directory, or, where neither can be written, in a temporary directory. Importing this module
settles that, so whoever compiles gets numba from here.

numba has no type stubs: it is Any to the type checker.
"""

import os
import tempfile
from importlib import import_module
from typing import Any

numba: Any = import_module("numba")
intrinsic: Any = import_module("numba.extending").intrinsic
_cgutils: Any = import_module("numba.core.cgutils")


def _make_cache_writable() -> None:
    """numba refuses to define a cached function where no cache can be written."""
    user_cache = os.path.expanduser("~/.cache")
    places = (os.path.dirname(__file__), user_cache, os.path.dirname(user_cache))
    if not numba.config.CACHE_DIR and not any(os.access(place, os.W_OK) for place in places):
        numba.config.CACHE_DIR = tempfile.mkdtemp(prefix="ottla-numba-")


_make_cache_writable()


def _copy_typing(
    typing: Any, target: Any, target_at: Any, source: Any, source_at: Any, size: Any
) -> Any:
    """memcpy between two byte arrays: a slice assignment costs three times as much."""
    signature = numba.void(target, numba.int64, source, numba.int64, numba.int64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        to = context.make_array(sig.args[0])(context, builder, args[0]).data
        of = context.make_array(sig.args[2])(context, builder, args[2]).data
        _cgutils.raw_memcpy(
            builder, builder.gep(to, [args[1]]), builder.gep(of, [args[3]]), args[4], 1
        )
        return context.get_dummy_value()

    return signature, generate


copy_bytes: Any = intrinsic(_copy_typing)


def _pointer_typing(typing: Any, address: Any) -> Any:
    """An address as a pointer, from which `numba.carray` makes an array."""
    signature = numba.types.voidptr(numba.int64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], _cgutils.voidptr_t)

    return signature, generate


pointer_to: Any = intrinsic(_pointer_typing)
