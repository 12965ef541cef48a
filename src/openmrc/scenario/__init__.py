"""Scenario files: schema, traffic patterns, message graphs, imported formats, the ideal.

>>> s = load_scenario({
...     "fabric": {"nics": 4, "hosts_per_t0": 2},
...     "traffic": [{"pattern": "incast", "target": 0, "size": "1MB"}],
... })
>>> s.name, len(s.traffic)
('scenario', 1)
"""

from openmrc.scenario.graph import GraphBuilder, MessageGraph
from openmrc.scenario.load import load_scenario, parse_set
from openmrc.scenario.patterns import build_graph
from openmrc.scenario.schema import Scenario, json_schema

__all__ = [
    "GraphBuilder",
    "MessageGraph",
    "Scenario",
    "build_graph",
    "json_schema",
    "load_scenario",
    "parse_set",
]
