"""Serial arithmetic on wrapping counters (RFC 1982 style): PSN 24 bit, MSN 16 bit.

A PSN is never compared with ``<``. Values exactly half the circle apart are unordered: neither
is after the other. All functions are kernels: they run compiled and as plain Python.
"""

from __future__ import annotations

from openmrc.jit import inline_kernel

PSN_MASK = 0xFFFFFF
PSN_HALF = 0x800000
MSN_MASK = 0xFFFF
MSN_HALF = 0x8000
RCVD_BYTES_MASK = 0xFFFFFF  # CC_STATE.rcvd_bytes, in units of 256 B


@inline_kernel
def psn_add(psn, n):
    """Return ``psn`` moved by ``n`` (which may be negative), modulo 2^24."""
    return (psn + n) & 0xFFFFFF


@inline_kernel
def psn_diff(a, b):
    """Return the signed distance ``a - b`` in [-2^23, 2^23); -2^23 means unordered."""
    return ((a - b + 0x800000) & 0xFFFFFF) - 0x800000


@inline_kernel
def psn_after(a, b):
    """Return True when ``a`` is strictly after ``b``; False when exactly 2^23 apart."""
    return 0 < ((a - b) & 0xFFFFFF) < 0x800000


@inline_kernel
def msn_diff(a, b):
    """Return the signed distance ``a - b`` of two 16-bit message numbers in [-2^15, 2^15)."""
    return ((a - b + 0x8000) & 0xFFFF) - 0x8000


@inline_kernel
def rcvd_bytes_diff(a, b):
    """Return the signed distance of two CC_STATE ``rcvd_bytes`` values (24 bit)."""
    return ((a - b + 0x800000) & 0xFFFFFF) - 0x800000
