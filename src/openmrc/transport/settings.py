"""What a user may set about the transport, and the integers the kernels make of it.

`TransportSettings` is the ``[transport]`` table of a scenario and the QP settings of a live
endpoint. `Profile` is the same as plain integers (picoseconds, bytes, rationals over 2^20) once
the network is known: rate, base RTT, packet sizes.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator

from openmrc.errors import InputError
from openmrc.limits import MAX_BACKUP_PER_PLANE, MAX_EV_COUNT, MAX_MPR, MPR_UNIT, NEVER_PS, PMTU_CHOICES
from openmrc.units import PS_PER_S, DurationPs, SizeBytes

GAIN_ONE = 1 << 20  # gains are rationals over 2^20
REFERENCE_BDP_BYTES = 150_000  # 100 Gb/s x 12 us (UEC 1.0 s3.6.13)
REFERENCE_DELAY_PS = 12_000_000
TIMEOUT_UNIT_PS = 1_024_000  # local ACK timeout = 1.024 us x 2^n


class NsccSettings(BaseModel):
    """Congestion control (UEC 1.0 s3.6.13). Unset values follow the profile."""

    model_config = ConfigDict(extra="forbid")

    profile: Literal["mrc-nscc", "uet-1.0-nscc", "off"] = Field(
        "mrc-nscc",
        description="`uet-1.0-nscc` is the letter of the specification; `mrc-nscc` is the same with the four "
        "changes below; `off` keeps the window at its maximum.",
    )
    max_cwnd: float = Field(1.5, gt=0, le=8, description="Largest and initial window, in BDP.")
    target_delay: DurationPs | None = Field(
        None, description="Wanted queueing delay; unset: 0.75 base RTT with trimming, 1.0 without."
    )
    gamma: float = Field(0.8, ge=0, le=1, description="Gain of one multiplicative decrease.")
    max_md_jump: float = Field(0.5, gt=0, le=1, description="Smallest factor of one multiplicative decrease.")
    fi: float = Field(5.0, ge=0, le=64, description="Fair increase, in MTU x a.")
    fi_scale: float = Field(0.25, ge=0, le=4, description="Fast increase: bytes per byte acknowledged, x a.")
    eta: float = Field(0.15, ge=0, le=16, description="Increase once per adjustment period, in MTU x a.")
    alpha: float = Field(
        4.0, ge=0, le=64, description="Gain of the proportional increase (x a x b x MTU / target)."
    )
    adjust_bytes: int = Field(
        8, ge=1, le=256, description="Increases are applied after this many MTU acknowledged."
    )
    adjust_period: float = Field(1.0, gt=0, le=64, description="... and at least this often, in base RTTs.")
    qa_gate: int = Field(3, ge=0, le=16, description="Quick adapt only if achieved < max_cwnd / 2^qa_gate.")
    qa_threshold: DurationPs | None = Field(
        None, description="Delay that triggers quick adapt; unset: off with trimming, 4 x target without."
    )
    decrease_on_delay: bool | None = Field(
        None, description="Change 1: unmarked and delay >= target decreases (ECN is off at the last hop)."
    )
    min_cwnd: float | None = Field(
        None, gt=0, le=16, description="Change 2: floor of the window in MTU; below 1 packets are paced."
    )
    qa_never_raises: bool | None = Field(
        None, description="Change 3: quick adapt only ever lowers the window."
    )
    nack_must_match: bool | None = Field(
        None, description="Change 4: a NACK that matches no transmission in flight changes nothing."
    )
    shared_per_destination: bool = Field(
        False, description="One controller for all QPs from one NIC to the same destination NIC."
    )


class TransportSettings(BaseModel):
    """Everything about MRC's endpoints that a user may set."""

    model_config = ConfigDict(extra="forbid")

    mode: Literal["srv6", "stev", "ecmp"] = Field(
        "srv6",
        description="Forwarding: source-routed by SRv6 uSIDs, by the fields of a structured EV, or hashed by "
        "switches.",
    )
    pmtu: SizeBytes = Field(4096, description="Payload bytes of a full packet: 1024, 2048, 4096 or 8192 B.")
    tseth: bool = Field(True, description="Data packets carry a transmit timestamp (TSETH).")
    ev_count: int = Field(
        256, ge=1, le=MAX_EV_COUNT, description="Active EVs (paths) per QP, spread evenly over the planes."
    )
    backup_per_plane: int = Field(
        8, ge=0, le=MAX_BACKUP_PER_PLANE, description="Spare EVs per plane that replace a condemned one."
    )
    ev_min_active: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of the active set that is never condemned: beyond it loss is not the path's.",
    )
    recover_probes: int = Field(
        3, ge=1, le=7, description="Probes in a row that bring an ASSUMED_BAD EV back."
    )
    probe_cap: DurationPs = Field(100_000_000_000, description="Longest interval between probes of a bad EV.")
    mpr: int = Field(8, ge=1, le=MAX_MPR, description="Responder window in units of 128 PSNs.")
    sack_bytes: SizeBytes = Field(16384, description="A SACK is sent after this many bytes.")
    sack_min_packet: SizeBytes = Field(1024, description="Each packet counts at least this much towards it.")
    sack_delay: DurationPs | None = Field(
        None, description="Latest SACK after the first unreported packet; unset: base RTT / 4."
    )
    loss_fifo: bool = Field(True, description="Loss rule (a): a later packet of the same EV arrived.")
    loss_guard: bool = Field(True, description="Loss rule (b): much later packets of other EVs arrived.")
    guard_deviations: int = Field(4, ge=0, le=64, description="RTT deviations added to the guard times.")
    exact_bitmap: bool = Field(
        True, description="The peer's SACK bitmaps are exact snapshots (agreed at setup)."
    )
    skip_on_ecn: bool = Field(True, description="A marked packet's EV skips one turn.")
    tail_probe: bool = Field(True, description="Probe on another plane after 2 smoothed RTTs of silence.")
    timeout_exponent: int = Field(7, ge=0, le=24, description="Local ACK timeout = 1.024 us x 2^n.")
    linear_cnt: int = Field(7, ge=0, le=7, description="Timeouts at that interval before it doubles.")
    exp_cnt: int = Field(25, ge=0, le=25, description="Doubling timeouts before the QP fails; 25: for ever.")
    write_imm_limit: int = Field(32, ge=32, le=4096, description="WRITE_IMMs that may be unacknowledged.")
    reverse_probes: bool = Field(True, description="The responder keeps its own paths fresh by EV probes.")
    base_rtt: DurationPs | None = Field(
        None, description="Unloaded RTT of the longest path; unset: computed from the fabric."
    )
    nscc: NsccSettings = Field(default_factory=NsccSettings, description="Congestion control.")

    @field_validator("pmtu")
    @classmethod
    def _pmtu_is_legal(cls, value: int) -> int:
        if value not in PMTU_CHOICES:
            raise ValueError(f"{value} B is not a legal PMTU; use 1024B, 2048B, 4096B or 8192B")
        return value


class Profile(NamedTuple):
    """The transport's constants as kernels read them: int64 picoseconds, bytes, gains over 2^20."""

    pmtu_bytes: int
    overhead_bytes: int  # outer IPv6 header to ICRC without payload, of a middle packet
    imm_bytes: int  # size of ImmDt, carried by the last packet of a WRITE_IMM
    base_rtt_ps: int
    window_psns: int  # responder window, MPR x 128
    ring_mask: int
    words: int  # 64-bit words of the responder's window, a power of two (PSNs wrap at 2^24)
    # EV selection and health
    ev_floor_percent: int
    recover_probes: int
    probe_cap_ps: int
    skip_on_ecn: int
    ecmp: int
    # SACK policy
    sack_bytes: int
    sack_min_packet: int
    sack_delay_ps: int
    # loss detection and timers
    loss_fifo: int
    loss_guard: int
    guard_deviations: int
    exact_bitmap: int
    tail_probe: int
    timeout_ps: int
    linear_cnt: int
    exp_cnt: int
    imm_limit: int
    reverse_probes: int
    # NSCC
    cc_on: int
    mtu_bytes: int
    max_cwnd_bytes: int
    target_ps: int
    gamma_q20: int
    md_floor_q20: int
    fi_bytes: int
    fi_scale_q20: int
    eta_bytes: int
    alpha_bytes: int
    adjust_bytes: int
    adjust_period_ps: int
    qa_gate: int
    qa_threshold_ps: int
    decrease_on_delay: int
    min_cwnd_q16: int
    qa_never_raises: int
    nack_must_match: int


def make_profile(
    settings: TransportSettings,
    *,
    rate_bps: int,
    base_rtt_ps: int,
    overhead_bytes: int,
    trimming: bool,
) -> Profile:
    """Return the kernels' constants for one network.

    Parameters
    ----------
    rate_bps
        Smaller of the sender's and the receiver's rate, all planes together.
    base_rtt_ps
        Unloaded RTT of the longest path; ``settings.base_rtt`` overrides it.
    overhead_bytes
        Wire bytes of a data packet from the outer IPv6 header to the ICRC, without payload.
    trimming
        Whether switches trim; it decides the defaults of target and quick adapt.

    Examples
    --------
    >>> p = make_profile(TransportSettings(), rate_bps=100_000_000_000, base_rtt_ps=12_000_000,
    ...                  overhead_bytes=142, trimming=True)
    >>> p.max_cwnd_bytes, p.fi_bytes, p.target_ps
    (225000, 20480, 9000000)
    """
    cc = settings.nscc
    base = settings.base_rtt or base_rtt_ps
    bdp = max(1, rate_bps * base // (8 * PS_PER_S))
    letter = cc.profile == "uet-1.0-nscc"
    target = cc.target_delay or (base * 3 // 4 if trimming else base)
    qa_default = NEVER_PS if trimming else 4 * target
    a = bdp / REFERENCE_BDP_BYTES
    b = target / REFERENCE_DELAY_PS
    mtu = settings.pmtu
    max_cwnd = max(int(cc.max_cwnd * bdp), mtu + overhead_bytes)
    ring = 64
    while ring < max_cwnd * 3 // 2 // mtu + 2:  # half more than a window: room while the oldest is repaired
        ring *= 2
    window = settings.mpr * MPR_UNIT
    if ring > 1 << 15:
        raise InputError(
            f"transport.nscc.max_cwnd: a window of {max_cwnd} B needs {ring} packets in flight; the limit is "
            f"32768; lower max_cwnd or raise transport.pmtu"
        )

    def choose(value: bool | None) -> int:
        return int(not letter if value is None else value)

    # the largest product: gain x bytes acknowledged at once (at most a ring full) x 2^16 stays below 2^62
    largest_gain = (1 << 62) // (ring * (mtu + overhead_bytes + 4) << 16)
    min_cwnd_mtu = cc.min_cwnd if cc.min_cwnd is not None else (1.0 if letter else 0.1)
    return Profile(
        pmtu_bytes=mtu,
        overhead_bytes=overhead_bytes,
        imm_bytes=4,
        base_rtt_ps=base,
        window_psns=window,
        ring_mask=ring - 1,
        words=1 << (window // 64 - 1).bit_length(),
        ev_floor_percent=round(settings.ev_min_active * 100),
        recover_probes=settings.recover_probes,
        probe_cap_ps=settings.probe_cap,
        skip_on_ecn=int(settings.skip_on_ecn),
        ecmp=int(settings.mode == "ecmp"),
        sack_bytes=settings.sack_bytes,
        sack_min_packet=settings.sack_min_packet,
        sack_delay_ps=settings.sack_delay or max(1, base // 4),
        loss_fifo=int(settings.loss_fifo and settings.mode != "ecmp"),
        loss_guard=int(settings.loss_guard),
        guard_deviations=settings.guard_deviations,
        exact_bitmap=int(settings.exact_bitmap),
        tail_probe=int(settings.tail_probe),
        timeout_ps=TIMEOUT_UNIT_PS << settings.timeout_exponent,
        linear_cnt=settings.linear_cnt,
        exp_cnt=settings.exp_cnt,
        imm_limit=settings.write_imm_limit,
        reverse_probes=int(settings.reverse_probes),
        cc_on=int(cc.profile != "off"),
        mtu_bytes=mtu,
        max_cwnd_bytes=max_cwnd,
        target_ps=target,
        gamma_q20=round(cc.gamma * GAIN_ONE),
        md_floor_q20=round(cc.max_md_jump * GAIN_ONE),
        fi_bytes=min(round(cc.fi * mtu * a), largest_gain),
        fi_scale_q20=round(cc.fi_scale * a * GAIN_ONE),
        eta_bytes=round(cc.eta * mtu * a),
        alpha_bytes=min(round(cc.alpha * a * b * mtu), largest_gain),
        adjust_bytes=cc.adjust_bytes * mtu,
        adjust_period_ps=max(1, int(cc.adjust_period * base)),
        qa_gate=cc.qa_gate,
        qa_threshold_ps=cc.qa_threshold or qa_default,
        decrease_on_delay=choose(cc.decrease_on_delay),
        min_cwnd_q16=int(min_cwnd_mtu * (mtu + overhead_bytes) * 65536),
        qa_never_raises=choose(cc.qa_never_raises),
        nack_must_match=choose(cc.nack_must_match),
    )
