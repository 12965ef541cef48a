"""Random lives of a pair of engines: `python tests/transport_episodes.py SEED` repeats one."""

from __future__ import annotations

import random
import sys
from typing import Any

from transport_model import Weather
from transport_network import Network
from transport_support import US, make

ROUTES = (((0, 1),), ((0, 1), (1, 0)), ((0, 1), (0, 1), (1, 0)))
LENGTHS = (0, 1, 3, 100, 1023, 1024, 1025, 5000, 20_000, 60_000)


def random_weather(r: random.Random) -> Weather:
    """Return weather in which most kinds of trouble are absent and a few are bad."""

    def some(*values: float) -> float:
        return r.choice((0.0, 0.0, 0.0, *values))

    return Weather(
        loss=some(0.005, 0.03, 0.2),
        duplicate=some(0.02, 0.2),
        trim=some(0.02, 0.3),
        trim_lasthop=some(0.02, 0.3),
        corrupt=some(0.01, 0.1),
        mark=some(0.05, 0.5),
        refuse=some(0.01, 0.1),
        fatal=r.choice((0.0,) * 4 + (0.01,)),
        jitter_ps=int(some(US, 20 * US)),
        control_loss=some(0.05, 0.4),
        control_duplicate=some(0.05, 0.3),
        control_jitter_ps=int(some(US, 10 * US, 100 * US)),
        replay=some(0.01, 0.1),
        fifo=r.random() < 0.7,
    )


def random_network(seed: int) -> Network:
    """Return a pair of engines with random settings."""
    r = random.Random(seed)
    routes = r.choice(ROUTES)
    shared = len(routes) == 3 and r.random() < 0.6
    nscc: dict[str, Any] = {
        "profile": r.choice(("mrc-nscc", "mrc-nscc", "uet-1.0-nscc", "off")),
        "max_cwnd": r.choice((0.02, 0.1, 0.5, 1.5)),
    }
    fifo, guard = r.random() < 0.9, r.random() < 0.9
    exact = r.random() < 0.9
    finds_losses = exact and (fifo or guard)  # else only timeouts do, and tail probes go on and on meanwhile
    profile = make(
        nscc,
        trimming=r.random() < 0.8,
        timeout_exponent=r.choice((4, 5, 7)),
        exp_cnt=r.choice((25, 25, 2)),
        linear_cnt=r.choice((7, 2)),
        tail_probe=finds_losses and r.random() < 0.8,
        loss_fifo=fifo,
        loss_guard=guard,
        exact_bitmap=exact,
        sack_bytes=r.choice((1024, 4096, 16384, 65536)),
        mode="ecmp" if r.random() < 0.1 else "srv6",
    )
    network = Network(
        seed,
        profile,
        routes=routes,
        planes=r.choice((1, 2, 4)),
        active=r.choice((1, 2, 4)),
        backups=r.choice((0, 1, 2)),
        depth=r.choice((1, 4, 64)),
        first_psn=(-r.randrange(300)) & 0xFFFFFF,
        cc_row=[0, 0, 1] if shared else None,
        recv_posted=r.choice((1 << 60,) * 12 + (r.randrange(20),)),
        responder_window=r.choice((None,) * 5 + (4,)),
        memory_bytes=1 << 20,
        weather=random_weather(r),
    )
    network.before_wrap(r.randrange(1 << 20))
    return network


def disturb(network: Network, r: random.Random) -> None:
    """Break or mend something."""
    what = r.randrange(9)
    end, plane, index = r.randrange(2), r.randrange(network.planes), r.randrange(network.per_plane)
    if what == 0:
        network.kill(end, plane, index)
        network.stats["path_killed"] += 1
    elif what == 1:
        network.kill(end, plane, index, alive=True, loss=r.choice((0.2, 0.6)))
    elif what == 2:
        network.port(end, plane, False)
    elif what == 3:
        network.port(end, plane, True)
    elif what in (4, 5):  # silence: nothing gets through for a while
        calm, network.weather = network.weather, Weather(loss=1.0, control_loss=1.0)
        network.run_for(r.choice((20, 200, 5000)) * US)
        network.weather = calm
        network.stats["silence"] += 1
    else:
        for path in network.paths.values():
            path.alive, path.loss = True, 0.0


def episode(seed: int, steps: int = 1000) -> Network:
    """Run one random life to its end; every step is checked."""
    network = random_network(seed)
    r = random.Random(seed + (1 << 32))
    while network.steps < steps and not all(d.failed for d in network.directions):
        for d in network.directions:
            for _ in range(r.choice((0, 1, 2, 8, 40))):
                if not network.post(d.q, r.choice(LENGTHS), int(r.random() < 0.4)):
                    break
        network.run(r.choice((10, 50, 200)))
        if r.random() < 0.4:
            disturb(network, r)
    network.drain()
    return network


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(argument, episode(int(argument)).stats)
