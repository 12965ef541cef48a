"""uSIDs in an IPv6 address: 32-bit locator block, then 16-bit uSIDs, zero filled (RFC 9800)."""

from __future__ import annotations

from openmrc.errors import WireError

BLOCK_BYTES = 4
USID_BYTES = 2
ADDRESS_BYTES = 16
USIDS_PER_ADDRESS = (ADDRESS_BYTES - BLOCK_BYTES) // USID_BYTES


def shift_usid(address: bytes) -> bytes:
    """Return the address after one NEXT-CSID step: the active uSID leaves, zeros enter (RFC 9800 s4.1).

    >>> import ipaddress
    >>> carrier = ipaddress.IPv6Address("fcbb:bbbb:1:2:3:4::").packed
    >>> str(ipaddress.IPv6Address(shift_usid(carrier)))
    'fcbb:bbbb:2:3:4::'
    """
    if len(address) != ADDRESS_BYTES:
        raise WireError(f"address: {len(address)} bytes where {ADDRESS_BYTES} must stand")
    return bytes(address[:BLOCK_BYTES]) + bytes(address[BLOCK_BYTES + USID_BYTES :]) + bytes(USID_BYTES)


def address_usids(address: bytes) -> tuple[int, ...]:
    """Return the uSIDs of an address up to the first zero, the active one first.

    >>> import ipaddress
    >>> address_usids(ipaddress.IPv6Address("fcbb:bbbb:1:2:3:4::").packed)
    (1, 2, 3, 4)
    """
    usids: list[int] = []
    for offset in range(BLOCK_BYTES, ADDRESS_BYTES, USID_BYTES):
        usid = int.from_bytes(address[offset : offset + USID_BYTES], "big")
        if usid == 0:
            break
        usids.append(usid)
    return tuple(usids)


def usid_address(block: int, usids: tuple[int, ...]) -> bytes:
    """Return the carrier address of a locator block (32 bit) and up to six uSIDs.

    >>> usid_address(0xFCBBBBBB, (1, 2, 3)).hex()
    'fcbbbbbb000100020003000000000000'
    """
    if not 0 <= block <= 0xFFFFFFFF:
        raise WireError(f"locator block: {block} does not fit 32 bits")
    if len(usids) > USIDS_PER_ADDRESS:
        raise WireError(f"uSIDs: {len(usids)} do not fit one address; use at most {USIDS_PER_ADDRESS}")
    if not all(0 < usid <= 0xFFFF for usid in usids):
        raise WireError(f"uSIDs: {usids} has one outside 1..65535; 0 ends the list")
    body = b"".join(usid.to_bytes(USID_BYTES, "big") for usid in usids)
    return (block.to_bytes(BLOCK_BYTES, "big") + body).ljust(ADDRESS_BYTES, b"\0")
