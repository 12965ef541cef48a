"""Many arrays and integers handed to kernels as one pointer.

A kernel that takes a tuple of arrays has a hundred machine-level arguments, and compiling it costs a
second or more whatever it does. :func:`pack` turns a NamedTuple of arrays and ints into a
:class:`Packed`: attributes read the same in Python and in kernels (``sim.port[link]``), but a kernel
receives one address and loads what it uses. The loads are marked invariant, so compiled loops keep
pointers in registers as before.

>>> from typing import NamedTuple
>>> import numpy as np
>>> class Box(NamedTuple):
...     limit: int
...     data: np.ndarray
>>> box = pack(Box(7, np.arange(3)))
>>> box.limit, box.data.sum(), box._replace(limit=8).limit
(7, np.int64(3), 8)
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.core.pythonapi import NativeValue
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, lower_getattr_generic, typeof_impl, unbox
from numba.np.arrayobj import make_array, populate_array

T = TypeVar("T")


class PackedType(types.Type):
    """Type of a :class:`Packed` in kernels: its field names and their types."""

    def __init__(self, name: str, fields: tuple[tuple[str, types.Type], ...]):
        self.fields = fields
        # a short name: it becomes part of every symbol of every kernel
        layout = ", ".join(f"{n}: {t}" for n, t in fields)
        super().__init__(name=f"{name}_{hashlib.sha256(layout.encode()).hexdigest()[:10]}")

    @property
    def key(self) -> Any:
        """What makes two types the same to numba."""
        return self.name

    def offset_of(self, attr: str) -> int:
        """Return the place of a field in the buffer, in words: one for an int, 1 + ndim for an array."""
        offset = 0
        for name, kind in self.fields:
            if name == attr:
                return offset
            offset += 1 + getattr(kind, "ndim", 0)
        raise KeyError(attr)


class Packed:
    """A NamedTuple of arrays and ints that kernels receive as one address."""

    def __init__(self, content: Any):
        fields = []
        words: list[int] = []
        for name, value in zip(content._fields, content, strict=True):
            if isinstance(value, np.ndarray):
                assert value.flags.c_contiguous, f"{name} must be C-contiguous"
                dtype = numba.from_dtype(value.dtype)
                fields.append((name, types.Array(dtype, value.ndim, "C")))
                words += [value.ctypes.data, *value.shape]
            else:
                fields.append((name, types.int64))
                words.append(int(value))
        self._content = content
        self._buffer = np.array(words, dtype=np.int64)
        self._address = self._buffer.ctypes.data
        self._numba_type_ = PackedType(type(content).__name__, tuple(fields))
        for name, value in zip(content._fields, content, strict=True):
            setattr(self, name, value)

    def _replace(self, **changes: Any) -> Packed:
        return Packed(self._content._replace(**changes))

    def __getattr__(self, name: str) -> Any:  # only for type checkers: fields are set in __init__
        raise AttributeError(f"{type(self._content).__name__} has no field {name!r}")


def pack(content: T) -> T:
    """Return `content` (a NamedTuple) as a :class:`Packed`; it keeps the arrays alive."""
    return Packed(content)  # type: ignore[return-value]


@typeof_impl.register(Packed)
def _typeof_packed(value, c):
    return value._numba_type_


@register_default(PackedType)
class _PackedModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, ir.IntType(64))


@unbox(PackedType)
def _unbox_packed(typ, obj, c):
    address = c.pyapi.object_getattr_string(obj, "_address")
    value = c.pyapi.long_as_longlong(address)
    c.pyapi.decref(address)
    return NativeValue(value, is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))


@infer_getattr
class _PackedAttribute(AttributeTemplate):
    key = PackedType

    def generic_resolve(self, typ, attr):
        return dict(typ.fields).get(attr)


@lower_getattr_generic(PackedType)
def _get_field(context, builder, typ, value, attr):
    kind = dict(typ.fields)[attr]
    base = builder.inttoptr(value, ir.IntType(64).as_pointer())
    offset = typ.offset_of(attr)

    def load(index):
        word = builder.load(builder.gep(base, [ir.Constant(ir.IntType(64), index)]))
        word.set_metadata("invariant.load", builder.module.add_metadata([]))
        return word

    if not isinstance(kind, types.Array):
        return load(offset)
    array = make_array(kind)(context, builder)
    item_bytes = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    shape = [load(offset + 1 + i) for i in range(kind.ndim)]
    strides: list[Any] = []
    step = ir.Constant(ir.IntType(64), item_bytes)
    for extent in reversed(shape):
        strides.insert(0, step)
        step = builder.mul(step, extent)
    populate_array(
        array,
        data=builder.inttoptr(load(offset), array.data.type),
        shape=shape,
        strides=strides,
        itemsize=ir.Constant(ir.IntType(64), item_bytes),
        meminfo=None,
    )
    return array._getvalue()
