"""The event engine: a timing wheel of chunked buckets, swept in canonical order.

A bucket is narrower than the shortest hop, so it is closed when it is reached: its events are
copied out, sorted by (time, kind, flow, seq) and swept. What is nevertheless scheduled into the
bucket being swept (a NIC's wake-up, a release) is inserted at its place. Events further away than
``FAR_PS`` wait in a heap.
"""

from __future__ import annotations

import numpy as np

from openmrc.jit import inline_kernel, kernel, prefetch
from openmrc.sim.layout import CHUNK, FAR_PS, ID_MASK, KIND_SHIFT, PUSHES, I

NOW, BUCKET, CUR, END, SWEPT = I["now_ps"], I["bucket"], I["cur"], I["end"], I["swept"]
EVENTS, FREE, N_FREE, FAR, OVERFLOW = (
    I["events"],
    I["free_chunk"],
    I["n_free_chunks"],
    I["far"],
    I["overflow"],
)
WAITING = I["waiting"]
INSERTION_LIMIT = 24
DIGITS = 256
# what load_bucket() answers
LOADED, EMPTY, GROW_SORT, GROW_CHUNKS = range(4)


@kernel
def _insert_now(sm, w0, w1):
    """Insert an event into the bucket being swept, behind the current one, in order."""
    s = sm.s
    cur = s[CUR]
    at = s[END]
    if at >= sm.sort.shape[1]:
        s[OVERFLOW] = 1
        return
    while at > cur and (
        sm.sort[0, at - 1, 0] > w0 or (sm.sort[0, at - 1, 0] == w0 and sm.sort[0, at - 1, 1] > w1)
    ):
        sm.sort[0, at, 0] = sm.sort[0, at - 1, 0]
        sm.sort[0, at, 1] = sm.sort[0, at - 1, 1]
        at -= 1
    sm.sort[0, at, 0] = w0
    sm.sort[0, at, 1] = w1
    s[END] += 1
    s[EVENTS] += 1


@inline_kernel
def _store(sm, cfg, bucket, w0, w1):
    """Append an event to a bucket of the wheel."""
    s = sm.s
    at = bucket & (cfg.buckets - 1)
    n = np.int64(sm.slots[at, 1])
    k = n & (CHUNK - 1)
    if k == 0:
        fresh = s[FREE]
        if fresh < 0:
            s[OVERFLOW] = 1
            return
        s[FREE] = sm.chunk_next[fresh]
        s[N_FREE] -= 1
        sm.chunk_next[fresh] = sm.slots[at, 0]
        sm.slots[at, 0] = fresh
    place = np.int64(sm.slots[at, 0]) * CHUNK + k
    sm.chunk[place, 0] = w0
    sm.chunk[place, 1] = w1
    sm.slots[at, 1] = n + 1


@inline_kernel
def push(sm, cfg, time_ps, key, w1):
    """Schedule an event: `key` is kind << 29 | id. `time_ps` lies within FAR_PS of now.

    While a bucket is swept the event waits in a small ring until PUSHES later ones have come: its
    bucket's slot and then its chunk are fetched meanwhile. Buckets are sorted when loaded, so the
    order of arrival does not matter; `flush` stores what still waits when the sweep ends.
    """
    s = sm.s
    bucket = time_ps >> cfg.shift
    w0 = ((time_ps & 0xFFFFFFFF) << 32) | key
    ahead = bucket - s[BUCKET]
    if ahead >= cfg.buckets:
        bucket = s[BUCKET] + cfg.buckets - 1  # beyond the wheel: looked at again when it comes round
    if s[SWEPT] == 0:
        _store(sm, cfg, bucket, w0, w1)
        s[EVENTS] += 1
        return
    if ahead <= 0:
        _insert_now(sm, w0, w1)
        return
    count = s[WAITING]
    at = count & (PUSHES - 1)
    if count >= PUSHES:
        _store(sm, cfg, sm.pushes[at, 0], sm.pushes[at, 1], sm.pushes[at, 2])
    sm.pushes[at, 0] = bucket
    sm.pushes[at, 1] = w0
    sm.pushes[at, 2] = w1
    s[WAITING] = count + 1
    s[EVENTS] += 1
    prefetch(sm.slots, bucket & (cfg.buckets - 1), 0)
    middle = (at + PUSHES // 2) & (PUSHES - 1)
    half = sm.pushes[middle, 0] & (cfg.buckets - 1)
    place = np.int64(sm.slots[half, 0]) * CHUNK + (np.int64(sm.slots[half, 1]) & (CHUNK - 1))
    prefetch(sm.chunk, max(place, 0), 0)


@kernel
def flush(sm, cfg):
    """Store the pushes that still wait; every event is then in its bucket."""
    s = sm.s
    count = s[WAITING]
    for i in range(max(count - PUSHES, 0), count):
        at = i & (PUSHES - 1)
        _store(sm, cfg, sm.pushes[at, 0], sm.pushes[at, 1], sm.pushes[at, 2])
    s[WAITING] = 0


@kernel
def push_far(sm, cfg, time_ps, key):
    """Schedule an event without a second word at any distance."""
    s = sm.s
    if time_ps - s[NOW] < FAR_PS:
        push(sm, cfg, time_ps, key, np.int64(0))
        return
    at = s[FAR]
    assert at < sm.far_ps.shape[0]
    s[FAR] = at + 1
    while at > 0:
        up = (at - 1) >> 1
        if sm.far_ps[up] < time_ps or (sm.far_ps[up] == time_ps and sm.far_key[up] <= key):
            break
        sm.far_ps[at] = sm.far_ps[up]
        sm.far_key[at] = sm.far_key[up]
        at = up
    sm.far_ps[at] = time_ps
    sm.far_key[at] = key


@kernel
def _pop_far(sm):
    """Remove the earliest far event."""
    s = sm.s
    n = s[FAR] - 1
    s[FAR] = n
    time_ps = sm.far_ps[n]
    key = sm.far_key[n]
    at = np.int64(0)
    while True:
        child = 2 * at + 1
        if child >= n:
            break
        right = child + 1
        if right < n and (
            sm.far_ps[right] < sm.far_ps[child]
            or (sm.far_ps[right] == sm.far_ps[child] and sm.far_key[right] < sm.far_key[child])
        ):
            child = right
        if time_ps < sm.far_ps[child] or (time_ps == sm.far_ps[child] and key <= sm.far_key[child]):
            break
        sm.far_ps[at] = sm.far_ps[child]
        sm.far_key[at] = sm.far_key[child]
        at = child
    sm.far_ps[at] = time_ps
    sm.far_key[at] = key


@kernel
def bring_near(sm, cfg, before_ps):
    """Move far events that are due before `before_ps` into the wheel."""
    s = sm.s
    while s[FAR] > 0 and sm.far_ps[0] < before_ps:
        time_ps = sm.far_ps[0]
        key = sm.far_key[0]
        _pop_far(sm)
        push(sm, cfg, time_ps, key, np.int64(0))


@inline_kernel
def _insertion_sort(a, low, high):
    for i in range(low + 1, high):
        w0 = a[i, 0]
        w1 = a[i, 1]
        j = i
        while j > low and (a[j - 1, 0] > w0 or (a[j - 1, 0] == w0 and a[j - 1, 1] > w1)):
            a[j, 0] = a[j - 1, 0]
            a[j, 1] = a[j - 1, 1]
            j -= 1
        a[j, 0] = w0
        a[j, 1] = w1


@kernel
def _sort(sm, cfg, n):
    """Sort the first n scratch events: by time digits when there are many, then by insertion."""
    a = sm.sort[0]
    if n > INSERTION_LIMIT:
        b = sm.sort[1]
        bits = min(cfg.shift, 8)
        down = 32 + cfg.shift - bits
        digit_mask = (1 << bits) - 1
        digit = sm.digit
        for d in range(DIGITS + 1):
            digit[d] = 0
        for i in range(n):
            digit[((a[i, 0] >> down) & digit_mask) + 1] += 1
        for d in range(DIGITS):
            digit[d + 1] += digit[d]
        for i in range(n):
            d = (a[i, 0] >> down) & digit_mask
            to = digit[d]
            digit[d] = to + 1
            b[to, 0] = a[i, 0]
            b[to, 1] = a[i, 1]
        for i in range(n):
            a[i, 0] = b[i, 0]
            a[i, 1] = b[i, 1]
    _insertion_sort(a, 0, n)


@kernel
def load_bucket(sm, cfg):
    """Copy the current bucket into the scratch array, sorted. Says LOADED, EMPTY or what must grow."""
    s = sm.s
    at = s[BUCKET] & (cfg.buckets - 1)
    n = np.int64(sm.slots[at, 1])
    if n == 0:
        return EMPTY
    if 2 * n + 4096 > sm.sort.shape[1]:
        return GROW_SORT
    if 4 * n + 4096 > s[N_FREE]:
        return GROW_CHUNKS
    width = np.int64(1) << cfg.shift
    low = (s[BUCKET] << cfg.shift) & 0xFFFFFFFF
    chunk = np.int64(sm.slots[at, 0])
    in_chunk = ((n - 1) & (CHUNK - 1)) + 1
    sm.slots[at, 0] = -1
    sm.slots[at, 1] = 0
    s[EVENTS] -= n
    start_ps = s[BUCKET] << cfg.shift
    kept = np.int64(0)
    while chunk >= 0:
        base = chunk * CHUNK
        for i in range(in_chunk):
            w0 = sm.chunk[base + i, 0]
            offset = (((w0 >> 32) & 0xFFFFFFFF) - low) & 0xFFFFFFFF
            if offset < width:
                sm.sort[0, kept, 0] = w0
                sm.sort[0, kept, 1] = sm.chunk[base + i, 1]
                kept += 1
            else:  # it had been beyond the wheel
                push(sm, cfg, start_ps + offset, w0 & 0xFFFFFFFF, sm.chunk[base + i, 1])
        following = np.int64(sm.chunk_next[chunk])
        sm.chunk_next[chunk] = s[FREE]
        s[FREE] = chunk
        s[N_FREE] += 1
        chunk = following
        in_chunk = np.int64(CHUNK)
    _sort(sm, cfg, kept)
    s[EVENTS] += kept
    s[CUR] = 0
    s[END] = kept
    s[SWEPT] = 1
    return LOADED


@inline_kernel
def event_time(sm, cfg, w0):
    """Return the full time of an event of the bucket being swept."""
    start = sm.s[BUCKET] << cfg.shift
    return start + ((((w0 >> 32) & 0xFFFFFFFF) - (start & 0xFFFFFFFF)) & 0xFFFFFFFF)


@inline_kernel
def event_kind(w0):
    """Return E_*."""
    return (w0 >> KIND_SHIFT) & 7


@inline_kernel
def event_id(w0):
    """Return the QP, NIC or node of an event."""
    return w0 & ID_MASK
