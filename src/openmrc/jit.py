"""The one decorator for compiled kernels, and where their machine code is kept.

A kernel is Python that numba compiles: arrays and scalars in, decisions out, no allocation
(``_nrt=False`` forbids it), no objects, no global state. The same source runs uncompiled with
``NUMBA_DISABLE_JIT=1``.

numba's disk cache does not notice edits in *other* modules, so the cache folder is keyed by a
hash of all kernel sources and of numba's version; see :func:`cache_dir`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
import platformdirs
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

JIT_DISABLED = bool(numba.config.DISABLE_JIT)
BOUNDS_CHECK = os.environ.get("OPENMRC_BOUNDSCHECK", "0") == "1"
#: files and packages that can hold kernels, or constants that kernels use
KERNEL_PACKAGES = (
    "psn.py",
    "jit.py",
    "packed.py",
    "limits.py",
    "units.py",
    "transport",
    "fabric",
    "sim",
    "wire",
    "live",
)

#: every kernel, for ``mrc doctor`` and the test that each compiles for one signature only
KERNELS: list[Any] = []


def kernel_sources() -> list[Path]:
    """Return the files that can change machine code: those with kernels, and what these import.

    An imported constant is compiled in, so its file counts although it has no kernel itself.
    """
    root = Path(__file__).parent
    candidates: list[Path] = []
    for name in KERNEL_PACKAGES:
        path = root / name
        candidates += sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.exists() else []
    texts = {file: file.read_text(encoding="utf-8") for file in candidates}
    found = {file for file, text in texts.items() if "openmrc.jit" in text or file.parent == root}
    new = set(found)
    while new:
        imports = [line for file in new for line in _IMPORT.findall(texts[file])]
        new = {root / path for line in imports for path in _files_of(*line)} & texts.keys() - found
        found |= new
    return sorted(found)


_IMPORT = re.compile(r"^\s*from openmrc\.?([\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


def _files_of(package: str, names: str) -> list[str]:
    """Return which files ``from openmrc.<package> import <names>`` may mean: a module, or modules in it."""
    folder = package.replace(".", "/")
    return [f"{folder}.py", *(f"{folder}/{name}.py" for name in re.findall(r"\w+", names))]


@lru_cache(maxsize=1)
def source_key() -> str:
    """Return a hash over all kernel sources, numba's version and the compile options."""
    root = Path(__file__).parent
    digest = hashlib.sha256(f"{numba.__version__}|{BOUNDS_CHECK}".encode())
    for file in kernel_sources():
        digest.update(file.relative_to(root).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def cache_parent() -> Path:
    """Return the folder that holds one sub-folder of machine code per version of the kernels."""
    configured = os.environ.get("NUMBA_CACHE_DIR")
    return Path(configured) if configured else Path(platformdirs.user_cache_dir("openmrc")) / "kernels"


@lru_cache(maxsize=1)
def cache_dir() -> Path | None:
    """Return the cache folder of this version, or None when it cannot be written."""
    path = cache_parent() / source_key()
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError:
        return None
    return path


def _forget_literals(compiled: Any) -> None:
    """Let calls with constants use the version for the type: numba would compile one for each constant."""
    resolve = compiled.get_call_template
    compiled.get_call_template = lambda args, kws: resolve(
        tuple(types.unliteral(a) for a in args), {name: types.unliteral(a) for name, a in kws.items()}
    )


def _compile(function: Callable, **options: Any) -> Any:
    if JIT_DISABLED:
        return function
    folder = cache_dir()
    before = numba.config.CACHE_DIR
    if folder is not None:
        numba.config.CACHE_DIR = str(folder)
    try:
        compiled = numba.njit(cache=folder is not None, _nrt=False, boundscheck=BOUNDS_CHECK, **options)(
            function
        )
    finally:
        numba.config.CACHE_DIR = before
    _forget_literals(compiled)
    KERNELS.append(compiled)
    return compiled


def kernel(function: Callable) -> Any:
    """Compile ``function``; for entry points and larger kernels."""
    return _compile(function, nogil=True)


def inline_kernel(function: Callable) -> Any:
    """Compile ``function`` and inline it wherever it is called; for small helpers."""
    return _compile(function, forceinline=True)


def merged_kernel(function: Callable) -> Any:
    """Compile ``function`` as part of its caller; for long functions that are called in one place.

    numba optimises a callee's machine code again at every level above it, so flat is fast to compile.
    """
    return _compile(function, inline="always")


def _u64_intrinsic(name: str, python: Callable[[int], int], doc: str) -> Any:
    """Build a one-argument uint64 -> int64 function from an LLVM intrinsic and its Python twin."""
    if JIT_DISABLED:
        python.__doc__ = doc
        return python

    @intrinsic
    def call(typingctx, x):
        def codegen(context, builder, signature, args):
            fn_type = cgutils.ir.FunctionType(
                args[0].type, [args[0].type] + ([cgutils.ir.IntType(1)] if name != "llvm.ctpop.i64" else [])
            )
            fn = cgutils.get_or_insert_function(builder.module, fn_type, name)
            extra = [] if name == "llvm.ctpop.i64" else [cgutils.false_bit]
            return builder.call(fn, [args[0], *extra])

        return types.int64(types.uint64), codegen

    @inline_kernel
    def wrapper(x):
        return call(x)

    wrapper.__doc__ = doc
    return wrapper


def _ctz_python(x: int) -> int:
    x = int(x)
    return 64 if x == 0 else (x & -x).bit_length() - 1


def _clz_python(x: int) -> int:
    return 64 - int(x).bit_length()


def _popcount_python(x: int) -> int:
    return int(x).bit_count()


ctz64 = _u64_intrinsic("llvm.cttz.i64", _ctz_python, "Number of trailing zero bits of a uint64; 64 for 0.")
clz64 = _u64_intrinsic("llvm.ctlz.i64", _clz_python, "Number of leading zero bits of a uint64; 64 for 0.")
popcount64 = _u64_intrinsic("llvm.ctpop.i64", _popcount_python, "Number of one bits of a uint64.")


@inline_kernel
def mix32(x):
    """Return a well-mixed 32-bit hash of ``x`` (int64 arithmetic only: same value compiled or not).

    "lowbias32" constants (Wellons, public domain); every product stays below 2^63.
    """
    x = x & 0xFFFFFFFF
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D) & 0xFFFFFFFF
    x = x ^ (x >> 15)
    x = (x * 0x46BD3C5B) & 0xFFFFFFFF  # odd 31-bit constant: keeps the product inside int64
    return x ^ (x >> 16)


@inline_kernel
def draw32(seed, a, b):
    """Return a uniform 32-bit number named by (seed, a, b): a counter-based random draw.

    Draws with different names are independent, so adding one never moves another.
    """
    x = mix32(seed ^ (seed >> 32))
    x = mix32(x ^ a ^ (a >> 32))
    return mix32(x + b + (b >> 32) * 0x9E3779B1)


def _prefetch_intrinsic() -> Any:
    """Build ``prefetch(array, index, byte_offset)``: bring the line of a row into the cache."""
    if JIT_DISABLED:
        return lambda array, index, byte_offset: None

    @intrinsic
    def call(typingctx, array, index, byte_offset):
        def codegen(context, builder, signature, args):
            from numba.np.arrayobj import make_array

            view = make_array(signature.args[0])(context, builder, args[0])
            stride = builder.extract_value(view.strides, 0)
            byte = cgutils.voidptr_t
            offset = builder.add(builder.mul(args[1], stride), args[2])
            pointer = builder.gep(builder.bitcast(view.data, byte), [offset])
            i32 = cgutils.ir.IntType(32)
            fn_type = cgutils.ir.FunctionType(cgutils.ir.VoidType(), [byte, i32, i32, i32])
            fn = cgutils.get_or_insert_function(builder.module, fn_type, "llvm.prefetch.p0")
            one = cgutils.ir.Constant(i32, 1)
            builder.call(fn, [pointer, cgutils.ir.Constant(i32, 0), cgutils.ir.Constant(i32, 3), one])
            return context.get_dummy_value()

        return types.void(array, types.int64, types.int64), codegen

    return call


#: ``prefetch(array, index, byte_offset)`` in kernels: a hint, no effect on results
prefetch = _prefetch_intrinsic()
