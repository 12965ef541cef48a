"""NSCC, the congestion control of MRC (UEC 1.0 s3.6.13), with the four changes of `mrc-nscc`.

Windows are int64 bytes with 16 fraction bits; gains are rationals over 2^20. Products stay
inside int64: the largest is a fair increase, 2^18 bytes acknowledged x 2^24 bytes x 2^16.
"""

from __future__ import annotations

import numpy as np

from openmrc.jit import inline_kernel, kernel

NO_SAMPLE = -1
SATURATED_INC_Q16 = 1 << 60
SATURATED_BYTES = 1 << 30  # byte counts that are cleared every period
ZERO_DELAY_PS = 1_000_000  # "delay ~ 0": below 1 us


@inline_kernel
def cwnd_bytes(cc):
    """Return the window in whole bytes."""
    return np.int64(cc["cwnd_q16"]) >> 16


@inline_kernel
def _set_cwnd(pf, cc, value_q16):
    """Store a window, kept between its floor and its ceiling."""
    ceiling = np.int64(cc["max_cwnd"]) << 16
    cc["cwnd_q16"] = max(min(value_q16, ceiling), pf.min_cwnd_q16)


@inline_kernel
def _lower_to(pf, cc, size_bytes):
    """Set the window to `size_bytes` but not below its floor."""
    cc["cwnd_q16"] = max(size_bytes << 16, pf.min_cwnd_q16)


@inline_kernel
def _subtract(pf, cc, p):
    """Take a lost or trimmed packet's bytes off the window, not below 1 MTU (less if it was less)."""
    cwnd_q16 = np.int64(cc["cwnd_q16"])
    floor_q16 = min(cwnd_q16, (pf.mtu_bytes + pf.overhead_bytes) << 16)
    cc["cwnd_q16"] = max(cwnd_q16 - (p << 16), floor_q16)


@inline_kernel
def _forget_increase(cc):
    cc["inc_q16"] = 0
    cc["received"] = 0


@inline_kernel
def _average(pf, cc, now, delay):
    """Fold one delay into the average; weight = time since the last sample / base RTT, at most 1."""
    elapsed = now - np.int64(cc["sample_ps"])
    base = np.int64(cc["base_rtt_ps"])
    cc["sample_ps"] = now
    average = np.int64(cc["avg_delay_q16"])
    if elapsed >= base:
        cc["avg_delay_q16"] = delay << 16
    elif elapsed > 0:
        weight_q16 = (elapsed << 16) // base
        cc["avg_delay_q16"] = average + (((delay << 16) - average) >> 16) * weight_q16


@inline_kernel
def _quick_adapt(pf, cc, now, loss, marked, delay):
    """Collapse the window to what was achieved when far too little was; True when it handled the event."""
    if np.int64(cc["ignored"]) < np.int64(cc["ignore"]) and marked:
        return True
    qa_end = np.int64(cc["qa_end_ps"])
    if now < qa_end:
        return False
    handled = False
    achieved = np.int64(cc["achieved"])
    triggered = cc["trigger_qa"] != 0 or loss or delay > pf.qa_threshold_ps
    if qa_end != 0 and triggered and achieved < (np.int64(cc["max_cwnd"]) >> pf.qa_gate):
        target = max(achieved, pf.mtu_bytes + pf.overhead_bytes)
        if pf.qa_never_raises:
            target = min(target, np.int64(cc["cwnd_q16"]) >> 16)
        _lower_to(pf, cc, target)
        cc["ignore"] = cc["inflight"]
        cc["ignored"] = 0
        cc["trigger_qa"] = 0
        handled = True
    cc["achieved"] = 0
    cc["qa_end_ps"] = now + np.int64(cc["base_rtt_ps"]) + pf.target_ps
    return handled


@inline_kernel
def _multiplicative_decrease(pf, cc, now):
    cc["increasing"] = 0
    cc["fi_count"] = 0
    average = np.int64(cc["avg_delay_q16"]) >> 16
    if average > pf.target_ps and now - np.int64(cc["last_decrease_ps"]) > np.int64(cc["base_rtt_ps"]):
        factor_q20 = (1 << 20) - pf.gamma_q20 * (average - pf.target_ps) // average
        factor_q20 = max(factor_q20, pf.md_floor_q20)
        _set_cwnd(pf, cc, (np.int64(cc["cwnd_q16"]) >> 10) * factor_q20 >> 10)
        cc["last_decrease_ps"] = now


@inline_kernel
def _fast_increase(pf, cc, n, delay):
    """Grow by a share of every byte while there is no queue at all; True when it did."""
    if delay >= ZERO_DELAY_PS:
        cc["fi_count"] = 0
        cc["increasing"] = 0
        return False
    cc["fi_count"] = min(np.int64(cc["fi_count"]) + n, SATURATED_BYTES)
    if np.int64(cc["fi_count"]) > cwnd_bytes(cc) or cc["increasing"] != 0:
        _set_cwnd(pf, cc, np.int64(cc["cwnd_q16"]) + ((n * pf.fi_scale_q20) >> 4))
        cc["increasing"] = 1
        return True
    return False


@inline_kernel
def _accumulate(cc, amount_q16):
    cc["inc_q16"] = min(np.int64(cc["inc_q16"]) + amount_q16, SATURATED_INC_Q16)


@inline_kernel
def _apply_increase(pf, cc, now):
    """Every adjust_period, or after adjust_bytes: cwnd += inc_bytes / cwnd, plus eta once per period."""
    period_over = now - np.int64(cc["last_adjust_ps"]) >= pf.adjust_period_ps
    if not period_over and np.int64(cc["received"]) <= pf.adjust_bytes:
        return
    grown = np.int64(cc["cwnd_q16"]) + np.int64(cc["inc_q16"]) // max(cwnd_bytes(cc), 1)
    if period_over:
        grown += pf.eta_bytes << 16
        cc["last_adjust_ps"] = now
    _set_cwnd(pf, cc, grown)
    _forget_increase(cc)


@inline_kernel
def _penalty(pf, cc, n, penalty, restore):
    """Apply or lift a penalty of the responder (CC_STATE rcv_cwnd_pen, restore_cwnd)."""
    saved = np.int64(cc["saved_cwnd_q16"])
    if penalty > 0:
        if saved == 0:
            cc["saved_cwnd_q16"] = cc["cwnd_q16"]
        current = min(np.int64(cc["cwnd_q16"]) >> 16, np.int64(cc["inflight"]))
        cc["cwnd_q16"] = max(current - ((penalty * n) >> 7), pf.mtu_bytes + pf.overhead_bytes) << 16
    elif restore and saved != 0:
        _set_cwnd(pf, cc, saved)
        cc["saved_cwnd_q16"] = 0


@kernel
def on_ack(pf, cc, now, n, marked, rtt, penalty, restore):
    """React to `n` newly acknowledged wire bytes (already taken out of in-flight by the caller).

    Parameters
    ----------
    marked
        The acknowledged packet carried an ECN mark.
    rtt
        Unambiguous RTT sample in ps, or ``NO_SAMPLE``.
    """
    cc["ignored"] = np.int64(cc["ignored"]) + n
    cc["received"] = min(np.int64(cc["received"]) + n, SATURATED_BYTES)
    cc["achieved"] = min(np.int64(cc["achieved"]) + n, SATURATED_BYTES)
    if pf.cc_on == 0:
        return
    _penalty(pf, cc, n, penalty, restore)
    if rtt == NO_SAMPLE:
        return
    if rtt < np.int64(cc["base_rtt_ps"]):
        # "re-scaled with base_rtt"
        cc["max_cwnd"] = max(
            pf.max_cwnd_bytes * (rtt >> 10) // (pf.base_rtt_ps >> 10),
            pf.mtu_bytes + pf.overhead_bytes,
        )
        cc["base_rtt_ps"] = rtt
        cc["cwnd_q16"] = min(np.int64(cc["cwnd_q16"]), np.int64(cc["max_cwnd"]) << 16)
    delay = rtt - np.int64(cc["base_rtt_ps"])
    _average(pf, cc, now, delay)
    if _quick_adapt(pf, cc, now, False, marked, delay):
        _forget_increase(cc)
        return
    may_increase = penalty == 0
    if delay >= pf.target_ps:
        if marked or pf.decrease_on_delay:
            _multiplicative_decrease(pf, cc, now)
        elif may_increase:
            _accumulate(cc, (pf.fi_bytes * n) << 16)
    elif not marked and may_increase and not _fast_increase(pf, cc, n, delay):
        share_q16 = ((pf.target_ps - delay) << 16) // pf.target_ps
        _accumulate(cc, pf.alpha_bytes * n * share_q16)
    if may_increase:
        _apply_increase(pf, cc, now)


@kernel
def on_trim(pf, cc, now, p):
    """React to a NACK TRIMMED of a packet of `p` wire bytes (in-flight already reduced)."""
    cc["ignored"] = np.int64(cc["ignored"]) + p
    if pf.cc_on == 0:
        return
    _average(pf, cc, now, pf.base_rtt_ps)
    cc["trigger_qa"] = 1
    if _quick_adapt(pf, cc, now, True, True, 0):
        _forget_increase(cc)
    else:
        _subtract(pf, cc, p)


@inline_kernel
def on_loss(pf, cc, p):
    """React to an inferred loss of `p` wire bytes (in-flight already reduced)."""
    cc["ignored"] = np.int64(cc["ignored"]) + p
    if pf.cc_on:
        _subtract(pf, cc, p)
