"""The entropy value (EV, 32 bit) in the two fields that survive the journey (docs/explanation/decisions.md).

Decision: low half in the UDP source port, high half in the low 16 bits of the flow label. Both
stand in the inner headers, because the outer destination is consumed on the way and the responder
must echo the path.
"""

from __future__ import annotations

from openmrc.errors import WireError


def entropy_to_fields(entropy: int) -> tuple[int, int]:
    """Return (UDP source port, IPv6 flow label) of an entropy value.

    >>> entropy_to_fields(0x0003C005)
    (49157, 3)
    """
    if not 0 <= entropy <= 0xFFFFFFFF:
        raise WireError(f"entropy: {entropy} does not fit 32 bits; use 0..4294967295")
    return entropy & 0xFFFF, entropy >> 16


def fields_to_entropy(source_port: int, flow_label: int = 0) -> int:
    """Return the entropy value that two header fields carry; over IPv4 the flow label is 0.

    Only the low 16 bits of the label count.

    >>> hex(fields_to_entropy(49157, 0xF0003))
    '0x3c005'
    """
    return (flow_label & 0xFFFF) << 16 | source_port & 0xFFFF
