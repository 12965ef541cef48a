"""From a scenario to the arrays that kernels run on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from openmrc.errors import ScenarioError
from openmrc.fabric.faults import FaultSchedule, compile_faults
from openmrc.fabric.paths import FabricParams, ev_encode, path_count, path_uplink
from openmrc.fabric.topology import Topology
from openmrc.jit import draw32, kernel
from openmrc.limits import NEVER_PS
from openmrc.packed import pack
from openmrc.scenario.graph import MessageGraph
from openmrc.scenario.patterns import build_graph
from openmrc.scenario.schema import Scenario
from openmrc.sim import layout as lay
from openmrc.sim.layout import I
from openmrc.sim.wheel import push_far
from openmrc.transport.evset import fill_plane
from openmrc.transport.settings import Profile, make_profile
from openmrc.transport.state import (
    CONTROL,
    CTRL_ACK,
    CTRL_EV_PROBE,
    CTRL_NACK,
    CTRL_PORT_STATUS,
    CTRL_PROBE,
    CTRL_RESPONSE,
    CTRL_SACK,
    State,
    aligned,
    allocate,
    open_directions,
    row_bytes,
)
from openmrc.units import PS_PER_MS, PS_PER_US
from openmrc.wire import sizes
from openmrc.wire.settings import Mode

ECMP_ENTROPIES = 1 << 13  # entropies a QP can choose from when switches hash
LAYERS_OF_HOPS = {2: (0, 1), 4: (0, 2, 3, 1), 6: (0, 2, 4, 5, 3, 1)}
MAX_BUCKETS_LOG2 = 18
FIRST_BIN_PS = PS_PER_US
MAX_BINS = 2048
MAX_SQ_DEPTH = 64
#: events hold 32 bits of their time, 4.29 ms; what is left is for delays and latency faults
MAX_STAY_PS = 3 * PS_PER_MS
RETURN_GAP_RTTS = 4  # less than the probes of a condemned EV take, more than a turn of the rotation
PREFETCH_FROM_BYTES = 1 << 20  # measured: it pays when state is well beyond the second-level cache


@dataclass
class Model:
    """Everything one simulation needs; made by :func:`build`."""

    scenario: Scenario
    topology: Topology
    graph: MessageGraph
    schedule: FaultSchedule
    profile: Profile
    fabric: FabricParams
    config: lay.Config
    state: State
    sim: lay.Sim
    base_rtt_ps: int


@dataclass
class Plan:
    """What a simulation will need, known before anything large is allocated."""

    scenario: Scenario
    topology: Topology
    graph: MessageGraph
    schedule: FaultSchedule
    profile: Profile
    base_rtt_ps: int
    ev_rows: int
    sq_depth: int
    memory_bytes: int
    packet_hops: int
    capture_bytes: int = 0  # of a capture file, when there will be one


def stream(seed: int, name: str) -> int:
    """Return the 62-bit seed of a named stream: adding a stream never moves another."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 2


def _mode(scenario: Scenario) -> Mode:
    return Mode(scenario.transport.mode)


def base_rtt_ps(scenario: Scenario, topology: Topology) -> int:
    """Return the unloaded RTT of the longest path: a full data packet there, a SACK back."""
    if scenario.transport.base_rtt is not None:
        return scenario.transport.base_rtt
    kinds = sizes.PacketKind
    data = sizes.line_bytes(
        kinds.DATA, _mode(scenario), scenario.transport.pmtu, tseth=scenario.transport.tseth
    )
    return topology.base_rtt_ps(data, sizes.line_bytes(kinds.SACK, _mode(scenario)))


def data_overhead_bytes(scenario: Scenario) -> int:
    """Return a data packet's bytes from the outermost IPv6 header to the ICRC, without payload."""
    pmtu = scenario.transport.pmtu
    return sizes.ip_bytes(sizes.PacketKind.DATA, _mode(scenario), pmtu, tseth=scenario.transport.tseth) - pmtu


def _paths_per_plane(scenario: Scenario, topology: Topology) -> int:
    if scenario.transport.mode == "ecmp":
        return ECMP_ENTROPIES
    p = topology.params
    return {2: 1, 4: p.uplinks, 6: p.uplinks * p.t1_uplinks}[topology.longest_hops]


def _active_per_plane(ev_count: int, paths: int, planes: int) -> tuple[int, int]:
    """Return (EVs of every plane, planes that have one more)."""
    total = min(ev_count, paths * planes)
    return total // planes, total % planes


def _ev_rows(scenario: Scenario, topology: Topology) -> int:
    paths = _paths_per_plane(scenario, topology)
    planes = topology.params.planes
    base, more = _active_per_plane(scenario.transport.ev_count, paths, planes)
    rows = 0
    for plane in range(planes):
        active = base + (1 if plane < more else 0)
        if active:
            rows += active + min(scenario.transport.backup_per_plane, paths - active)
    return rows


def _longest_stay_ps(scenario: Scenario, topology: Topology, rtt: int) -> int:
    """Return the longest time in a port at the nominal rate: behind a full queue, then on the line."""
    pmtu, switch = scenario.transport.pmtu, scenario.switch
    full = sizes.line_bytes(sizes.PacketKind.DATA, _mode(scenario), pmtu, tseth=scenario.transport.tseth)
    packet = full * int(topology.layer_mult_q16.max()) >> 16
    if scenario.sim.port_model == "exact":  # what waits there has no event yet
        return packet
    queue = max(switch.trim_threshold, switch.trim_threshold_last_hop, switch.queue_capacity)
    return round(queue * rtt) + (scenario.sim.nic_queue_packets + 1) * packet


def _check_limits(scenario: Scenario, topology: Topology, schedule: FaultSchedule, rtt: int) -> None:
    """Refuse what the simulator cannot represent.

    Raises
    ------
    ScenarioError
    """
    if scenario.transport.mode == "ecmp" and topology.params.tiers == 3:
        raise ScenarioError(
            "transport.mode: ecmp hashes over the uplinks of a T0 only, and this fabric has 3 tiers; "
            "use fabric.tiers = 2, or mode srv6 or stev"
        )
    slowest = int(schedule.arrays.seg_rate_mult.max(initial=65536)) / 65536
    stay = _longest_stay_ps(scenario, topology, rtt)
    if stay * slowest > MAX_STAY_PS:
        raise ScenarioError(
            f"fault: at {1 / slowest:.4g} of its rate a link keeps packets longer than the limit of "
            f"{MAX_STAY_PS / PS_PER_MS:g} ms; use a factor of at least {stay / MAX_STAY_PS:.2g}"
            + (", or sim.port_model = exact" if scenario.sim.port_model == "fast" else "")
        )


def plan(scenario: Scenario) -> Plan:
    """Work out what a scenario needs: graph, faults, constants, memory."""
    topology = Topology(scenario.fabric)
    graph = build_graph(scenario, topology)
    rtt = base_rtt_ps(scenario, topology)
    profile = make_profile(
        scenario.transport,
        rate_bps=topology.nic_rate_bps,
        base_rtt_ps=rtt,
        overhead_bytes=data_overhead_bytes(scenario),
        trimming=scenario.switch.trim,
    )
    horizon = scenario.sim.until or 1000 * PS_PER_MS
    schedule = compile_faults(topology, list(scenario.fault), scenario.seed, horizon)
    _check_limits(scenario, topology, schedule, rtt)
    ev_rows = _ev_rows(scenario, topology)
    per_qp = np.bincount(graph.qp[graph.messages], minlength=1).max(initial=1)
    depth = 1
    while depth < min(int(per_qp), MAX_SQ_DEPTH):
        depth *= 2
    qps = len(graph.qp_src)
    planes = topology.params.planes
    port_bytes = lay.PORT.itemsize + (lay.EXACT_PORT.itemsize if scenario.sim.port_model == "exact" else 0)
    ports = topology.n_links * port_bytes + topology.params.n_nics * lay.NIC.itemsize
    per_qp_bytes = row_bytes(profile, ev_rows, planes, depth) + lay.ROUTE.itemsize + lay.LINKAGE.itemsize
    in_flight = topology.params.n_nics * planes * 8 * 16 * 3
    memory = qps * per_qp_bytes + ports + graph.n_nodes * 96 + graph.n_edges * 8 + in_flight + (64 << 20)
    packets = np.maximum(1, -(-graph.size_bytes[graph.messages] // profile.pmtu_bytes)).sum()
    hops = int(packets) * topology.longest_hops * 5 // 4
    return Plan(scenario, topology, graph, schedule, profile, rtt, ev_rows, depth, int(memory), hops)


def _layer_table(scenario: Scenario, topology: Topology, rtt: int) -> np.ndarray:
    """Return rates, delays and queue thresholds (as times) of every layer of links."""
    switch = scenario.switch
    table = np.zeros((6, lay.L_COLUMNS), np.int64)
    for layer in range(6):
        last = layer == 1
        after = topology.switch_latency_ps
        if layer == 0:
            after += topology.nic_latency_ps
        if last:
            after = topology.nic_latency_ps
        # a plane-BDP = link rate x base RTT, so as a backlog in time it is one base RTT
        table[layer, lay.L_MULT] = topology.layer_mult_q16[layer]
        table[layer, lay.L_DELAY] = topology.layer_delay_ps[layer]
        table[layer, lay.L_ECN_LOW] = round(switch.ecn_low * rtt)
        table[layer, lay.L_ECN_HIGH] = round(switch.ecn_high * rtt)
        table[layer, lay.L_TRIM] = round(
            (switch.trim_threshold_last_hop if last else switch.trim_threshold) * rtt
        )
        table[layer, lay.L_CAPACITY] = round(switch.queue_capacity * rtt)
        table[layer, lay.L_CONTROL_CAPACITY] = round(switch.control_capacity * rtt)
        table[layer, lay.L_AFTER] = after
        table[layer, lay.L_ECN_ON] = int(switch.ecn and layer != 0 and (not last or switch.ecn_last_hop))
    return table


def _control_lines(mode: Mode) -> np.ndarray:
    kinds = sizes.PacketKind
    line = np.zeros(8, np.int64)
    for kind, packet in (
        (CTRL_SACK, kinds.SACK),
        (CTRL_ACK, kinds.TRANSPORT_ACK),
        (CTRL_NACK, kinds.NACK),
        (CTRL_PROBE, kinds.RELIABILITY_PROBE),
        (CTRL_PORT_STATUS, kinds.ENDPOINT_REQUEST),
        (CTRL_EV_PROBE, kinds.ENDPOINT_REQUEST),
        (CTRL_RESPONSE, kinds.ENDPOINT_RESPONSE),
    ):
        line[kind] = sizes.line_bytes(packet, mode)
    return line


def _wheel_shape(topology: Topology, active_nics: int, full_ser_ps: int, rtt: int) -> tuple[int, int]:
    """Return (buckets, shift): about 64 events a bucket, four base RTTs of reach where that fits."""
    per_ps = max(active_nics, 1) * topology.params.planes / full_ser_ps * (topology.longest_hops + 1)
    shift = 6
    while shift < 17 and per_ps * (2 << shift) < 256:
        shift += 1
    buckets = 10
    while buckets < MAX_BUCKETS_LOG2 and (1 << (buckets + shift)) < 4 * rtt:
        buckets += 1
    while (1 << (buckets + shift)) < rtt and shift < 17:
        shift += 1
    return 1 << buckets, shift


def _csr(keys: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (first, items): items of equal key together, in order."""
    first = np.zeros(n + 1, np.int32)
    np.cumsum(np.bincount(keys, minlength=n), out=first[1:])
    return first, np.argsort(keys, kind="stable").astype(np.int32)


def _linkage(graph: MessageGraph) -> np.ndarray:
    """Return the driver's rows per QP: nobody ready, leaders and opposite directions found."""
    src, dst = graph.qp_src.astype(np.int64), graph.qp_dst.astype(np.int64)
    rows = np.zeros(len(src), lay.LINKAGE)
    for name in ("next", "prev", "pending_head", "pending_tail", "sibling"):
        rows[name] = -1
    rows["req_timer_ps"] = rows["rsp_timer_ps"] = NEVER_PS
    if not len(src):
        return rows
    there, back = src * graph.nics + dst, dst * graph.nics + src
    pairs, first = np.unique(there, return_index=True)
    at = np.minimum(np.searchsorted(pairs, back), len(pairs) - 1)
    found = pairs[at] == back
    rows["sibling"] = np.where(found, first[at], -1)
    # one QP tells each peer NIC about our ports: a requestor half if there is one, else a responder half
    rows["leader"][first] |= 1
    pairs_back, first_back = np.unique(back, return_index=True)
    alone = ~np.isin(pairs_back, pairs)
    rows["leader"][first_back[alone]] |= 2
    return rows


@kernel
def _fill_paths(st, sm, cfg, fp, ecmp, ev_count, backups, scratch, entropies):
    """Draw every QP's EV set: distinct random paths per plane, the same number each, then backups."""
    planes = cfg.planes
    for q in range(sm.route.shape[0]):
        route = sm.route[q]
        src_t0 = np.int64(route["src_t0"])
        dst_t0 = np.int64(route["dst_t0"])
        paths = np.int64(ecmp) if ecmp > 0 else np.int64(path_count(fp, src_t0, dst_t0))
        for i in range(paths):
            scratch[i] = i
        total = min(ev_count, paths * planes)
        base = total // planes
        more = total % planes
        offset = draw32(cfg.path_seed, q, -1) % planes
        st.req[q]["last_plane"] = draw32(cfg.path_seed, q, -2) % planes
        st.rsp[q]["rev_cursor"] = draw32(cfg.path_seed, q, -3) % planes
        row = np.int64(0)
        for i in range(planes):
            plane = (i + offset) % planes
            active = base + (1 if i < more else 0)
            spare = min(backups, paths - active) if active > 0 else np.int64(0)
            for j in range(active + spare):
                pick = j + draw32(cfg.path_seed, q, plane << 32 | j) % (paths - j)
                chosen = scratch[pick]
                scratch[pick] = scratch[j]
                scratch[j] = chosen
                uplink = chosen if ecmp > 0 else path_uplink(fp, src_t0, dst_t0, chosen)
                entropies[j] = ev_encode(plane, uplink)
            fill_plane(st, q, plane, row, entropies, active, spare)
            row += active + spare
            back = draw32(cfg.path_seed, q, plane << 32 | 0xFFFF) % paths
            back_uplink = back if ecmp > 0 else path_uplink(fp, dst_t0, src_t0, back)
            st.rev[q, plane]["entropy"] = ev_encode(plane, back_uplink)


@kernel
def _schedule_start(sm, cfg, release_kind, port_kind):
    """Put the roots of the graph and all port events into the wheel or the heap."""
    for node in range(sm.node_waits.shape[0]):
        if sm.node_waits[node] == 0:
            push_far(sm, cfg, sm.node_start[node], release_kind | node)
    for i in range(sm.port_ev.shape[1]):
        push_far(sm, cfg, sm.port_ev[0, i], port_kind | i)


def _free_list(n: int) -> np.ndarray:
    following = np.arange(1, n + 1, dtype=np.int32)
    following[-1] = -1
    return following


def topology_is_large(p: Plan) -> bool:
    """Return True when the state outgrows the caches, so that fetching ahead pays."""
    return len(p.graph.qp_src) * row_bytes(p.profile, p.ev_rows, 1, 1) > PREFETCH_FROM_BYTES


def _config(p: Plan, buckets: int, shift: int, full_ser_ps: int, affected: int) -> lay.Config:
    scenario, mode = p.scenario, _mode(p.scenario)
    kinds = sizes.PacketKind
    pmtu, tseth, seed = scenario.transport.pmtu, scenario.transport.tseth, scenario.seed
    trim_bytes = scenario.switch.trim_bytes
    config = lay.Config(
        buckets=buckets,
        shift=shift,
        ecn_on=int(scenario.switch.ecn),
        trim_on=int(scenario.switch.trim),
        cut_through=int(scenario.switch.cut_through),
        ecmp=int(scenario.transport.mode == "ecmp"),
        ecn_seed=stream(seed, "ecn"),
        fault_seed=stream(seed, "fault-loss"),
        path_seed=stream(seed, "paths"),
        hash_seed=stream(seed, "ecmp") & 0xFFFFFFFF,
        nic_latency_ps=p.topology.nic_latency_ps,
        switch_latency_ps=p.topology.switch_latency_ps,
        room_ps=full_ser_ps * scenario.sim.nic_queue_packets,
        wake_ps=full_ser_ps * max(1, scenario.sim.nic_queue_packets // 2),
        return_gap_ps=RETURN_GAP_RTTS * p.base_rtt_ps,
        full_ser_ps=full_ser_ps,
        data_line_overhead=sizes.line_bytes(kinds.DATA, mode, pmtu, tseth=tseth) - pmtu,
        data_ip_overhead=data_overhead_bytes(scenario),
        trimmed_line_bytes=sizes.line_bytes(kinds.TRIMMED, mode, pmtu, tseth=tseth, trim_bytes=trim_bytes),
        header_line_bytes=trim_bytes,
        pmtu_bytes=pmtu,
        planes=p.topology.params.planes,
        affected_mask=affected - 1,
        heap_size=0,
        max_bins=MAX_BINS,
        prefetch=int(topology_is_large(p)),
        trace=0,
        exact=int(scenario.sim.port_model == "exact"),
    )
    return pack(config)


def build(p: Plan) -> Model:
    """Allocate and fill everything."""
    scenario, topology, graph, schedule = p.scenario, p.topology, p.graph, p.schedule
    profile, fp, qps = pack(p.profile), pack(topology.params), len(graph.qp_src)
    planes = fp.planes
    full_line = sizes.line_bytes(
        sizes.PacketKind.DATA, _mode(scenario), profile.pmtu_bytes, tseth=scenario.transport.tseth
    )
    full_ser = int(full_line * topology.layer_mult_q16[0]) >> 16
    active_nics = len(np.unique(graph.qp_src))
    buckets, shift = _wheel_shape(topology, active_nics, full_ser, p.base_rtt_ps)
    affected = 1 << 12 if schedule.infos else 1 << 4
    config = _config(p, buckets, shift, full_ser, affected)
    src, dst = graph.qp_src.astype(np.int64), graph.qp_dst.astype(np.int64)
    if scenario.transport.nscc.shared_per_destination and qps:
        _, cc_row = np.unique(src * graph.nics + dst, return_inverse=True)
    else:
        cc_row = np.arange(qps)
    state = allocate(profile, qps, max(p.ev_rows, 1), planes, p.sq_depth, int(cc_row.max(initial=0)) + 1)
    rng = np.random.Generator(np.random.Philox(key=stream(scenario.seed, "first-psn")))
    first_psn = rng.integers(0, 1 << 24, qps)
    open_directions(state, profile, first_psn, planes, cc_row)
    sim = _allocate_sim(p, config, active_nics, affected)
    _fill_static(sim, p)
    model = Model(scenario, topology, graph, schedule, profile, fp, config, state, sim, p.base_rtt_ps)
    paths = _paths_per_plane(scenario, topology)
    ecmp = ECMP_ENTROPIES if config.ecmp else 0
    scratch, entropies = np.zeros(paths + 1, np.int64), np.zeros(paths + 1, np.int64)
    if qps:
        _fill_paths(
            state,
            sim,
            config,
            fp,
            ecmp,
            scenario.transport.ev_count,
            scenario.transport.backup_per_plane,
            scratch,
            entropies,
        )
    _schedule_start(sim, config, lay.E_RELEASE << lay.KIND_SHIFT, lay.E_PORT << lay.KIND_SHIFT)
    return model


def _allocate_sim(p: Plan, config: lay.Config, active_nics: int, affected: int) -> lay.Sim:
    topology, graph, schedule = p.topology, p.graph, p.schedule
    fp, qps, n = topology.params, len(graph.qp_src), graph.n_nodes
    planes = fp.planes
    in_flight = active_nics * planes * 8 + 3 * qps + n
    chunks = max(8192, in_flight // lay.CHUNK + min(config.buckets, in_flight) // 4)
    sort = max(1 << 14, 4 * in_flight * (1 << config.shift) // max(p.base_rtt_ps, 1))
    slots = max(1 << 14, 2 * active_nics * planes + 8192)
    nic_first, nic_qps = _csr(graph.qp_src, fp.n_nics)
    nic_in_first, nic_in_qps = _csr(graph.qp_dst, fp.n_nics)
    layer_of = np.zeros((7, 6), np.int64)
    for hops, layers in LAYERS_OF_HOPS.items():
        layer_of[hops, :hops] = layers
    arrays = schedule.arrays
    ports = schedule.port_events
    fields: dict[str, Any] = {
        "s": np.zeros(len(lay.SCALARS), np.int64),
        "port": aligned(fp.n_links, lay.PORT),
        "exact_port": aligned(fp.n_links if config.exact else 1, lay.EXACT_PORT),
        "queued": np.zeros(max(1 << 14, in_flight) if config.exact else 1, lay.QUEUED),
        "route": aligned(qps, lay.ROUTE),
        "linkage": _linkage(graph),
        "nic": np.zeros(fp.n_nics, lay.NIC),
        "layer": _layer_table(p.scenario, topology, p.base_rtt_ps),
        "layer_of": layer_of,
        "line": _control_lines(_mode(p.scenario)),
        "peak": np.zeros(6, np.int64),
        "slots": np.tile(np.array([-1, 0], np.int32), (config.buckets, 1)),
        "pushes": np.zeros((lay.PUSHES, 3), np.int64),
        "chunk_next": _free_list(chunks),
        "chunk": np.zeros((chunks * lay.CHUNK, 2), np.int64),
        "sort": np.zeros((2, sort, 2), np.int64),
        "digit": np.zeros(257, np.int64),
        "far_ps": np.zeros(n + ports.time_ps.size + 1, np.int64),
        "far_key": np.zeros(n + ports.time_ps.size + 1, np.int64),
        "control": aligned(slots, CONTROL),
        "control_next": _free_list(slots),
        "out": np.zeros((lay.MAX_OUT, 3), np.int64),
        "nic_first": nic_first,
        "nic_qps": nic_qps,
        "nic_in_first": nic_in_first,
        "nic_in_qps": nic_in_qps,
        "node_kind": graph.kind.astype(np.int64),
        "node_size": graph.size_bytes,
        "node_start": graph.start_ps,
        "node_duration": graph.duration_ps,
        "node_imm": graph.imm.astype(np.int64),
        "node_qp": graph.qp,
        "node_waits": graph.n_deps.astype(np.int32).copy(),
        "node_next": np.full(n, -1, np.int32),
        "edge_first": graph.edge_first,
        "edge_child": graph.edge_child,
        "edge_on": graph.edge_on,
        **{name: getattr(arrays, name) for name in lay.Sim._fields if name.startswith("seg_")},
        "port_ev": np.stack([ports.time_ps, ports.nic, ports.plane, ports.up]),
        "fault_lost": np.zeros(len(schedule.infos), np.int64),
        "fault_back_ps": np.full(len(schedule.infos), -1, np.int64),
        "affected": np.zeros(affected, lay.AFFECTED),
        "drops": np.zeros(len(lay.DROP_REASONS), np.int64),
        "flow_start": np.full(n, -1, np.int64),
        "flow_received": np.full(n, -1, np.int64),
        "flow_end": np.full(n, -1, np.int64),
        "flow_rtx": np.zeros(n, np.int32),
        "flow_trim": np.zeros(n, np.int32),
        "plane_bytes": np.zeros(planes, np.int64),
        "timeline": np.zeros((MAX_BINS, lay.T_PLANE0 + planes), np.int64),
        "traced": np.zeros(qps, np.uint8),
        "trace": np.zeros(1, lay.TRACE),
        "trace_control": aligned(1, CONTROL),
    }
    s = fields["s"]
    s[I["n_free_chunks"]] = chunks
    s[I["kick"]] = s[I["touch_req"]] = s[I["touch_rsp"]] = -1
    s[I["messages_left"]] = len(graph.messages)
    fields["exact_port"]["data_head"] = fields["exact_port"]["control_head"] = -1
    fields["queued"]["next"] = _free_list(len(fields["queued"]))
    s[I["n_queued_free"]] = len(fields["queued"])
    width = p.scenario.sim.bin or FIRST_BIN_PS
    s[I["bin_width_ps"]] = s[I["bin_end_ps"]] = width
    return pack(lay.Sim(**fields))


def _fill_static(sim: lay.Sim, p: Plan) -> None:
    """Fill routes, NICs and the fault slots of ports."""
    fp, graph = p.topology.params, p.graph
    sim.port["fault"] = -1
    sim.port["fault"][p.schedule.slot_links] = np.arange(len(p.schedule.slot_links))
    sim.nic["ready"] = -1
    sim.nic["wake_ps"] = -1
    sim.nic["ports"] = (1 << fp.planes) - 1
    route = sim.route
    route["src"], route["dst"] = graph.qp_src, graph.qp_dst
    route["src_t0"] = graph.qp_src // fp.hosts_per_t0
    route["dst_t0"] = graph.qp_dst // fp.hosts_per_t0
    route["worst_link"] = -1
    same_t0 = route["src_t0"] == route["dst_t0"]
    same_pod = route["src_t0"] // fp.t0_per_pod == route["dst_t0"] // fp.t0_per_pod
    route["hops"] = np.where(same_t0, 2, np.where((fp.tiers == 2) | same_pod, 4, 6))
