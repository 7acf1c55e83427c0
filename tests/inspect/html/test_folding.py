"""Large graphs are folded by scopes of names, into graphs without cycles."""

from __future__ import annotations

import pytest

from nnefc.inspect.html.folding import folded
from nnefc.inspect.html.graph import BoxGraph, Edge, Node
from nnefc.inspect.html.kinds import KINDS, kind_of
from nnefc.inspect.html.page import page


def chain(names: list[str], weight: float | None = None) -> BoxGraph:
    """A chain with a line over each second box, between an input and an output."""
    nodes = [Node("input", "input", "x"), *(Node("Conv", "Conv", name, (), weight) for name in names)]
    nodes.append(Node("output", "output", "y"))
    last = len(nodes) - 1
    edges = [Edge(n, n + 1, "t") for n in range(last)] + [Edge(n, n + 2, "t") for n in range(1, last - 1, 2)]
    return BoxGraph("net", tuple(nodes), tuple(edges), (("network", "net"),))


def test_layers_are_groups_that_open() -> None:
    graph = chain([f"/layers.{layer}/block/op{n}" for layer in range(10) for n in range(9)] + ["/head/op"], 0.5)
    found = folded(graph)
    assert found is not None
    titles = [node.title for node in found.graph.nodes]
    assert titles == ["input", *(f"layers/{layer}/block" for layer in range(10)), "head", "output"]
    assert found.opens == (None, *range(11), None)
    assert all(edge.source < edge.target for group in (found.graph, *found.groups) for edge in group.edges)
    assert found.graph.nodes[1].name == "9 operators" and found.graph.nodes[1].weight == 1.0
    middle = found.groups[4]
    assert sum(node.kind == "Conv" for node in middle.nodes) == 9
    assert {node.title for node in middle.nodes if node.is_boundary} == {"from Conv", "to Conv"}
    text = page("net", [graph])
    assert text.count('<div class="graph">') == 2 + 11 and "<option>— layers/3/block</option>" in text


def test_a_scope_that_returns_is_a_group_of_its_own() -> None:
    names = [f"{scope}/op{n}" for scope in ("a", "b", "a", "b") for n in range(20)]
    found = folded(chain(names))
    assert found is not None
    assert [node.title for node in found.graph.nodes][1:-1] == ["a", "b", "a (2)", "b (2)"]


@pytest.mark.parametrize("names", [[f"a/{n}" for n in range(20)], [f"n{n}" for n in range(500)]])
def test_small_graphs_and_names_without_scopes_stay_as_they_are(names: list[str]) -> None:
    assert folded(chain(names)) is None


def test_the_work_is_linear(count: int = 20_000) -> None:
    found = folded(chain([f"s{n // 500}/op{n}" for n in range(count)]))
    assert found is not None and len(found.groups) == count // 500
    assert sum(len(group.nodes) for group in found.groups) < 1.1 * count


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("Conv", "convolution"),
        ("nn.Conv2d", "convolution"),
        ("conv + batch_normalization + relu", "convolution"),
        ("MatMul", "matrix product"),
        ("batch_normalization", "normalization"),
        ("Softmax", "activation"),
        ("GlobalAveragePool", "pooling"),
        ("ReduceMean", "reduction"),
        ("Add", "elementwise"),
        ("Reshape", "shape"),
        ("DequantizeLinear", "quantization"),
        ("If", "control"),
        ("input", "boundary"),
        ("StringNormalizer2", "normalization"),
        ("Mystery", "other"),
    ],
)
def test_operators_of_all_formats_have_a_kind(title: str, kind: str) -> None:
    assert kind_of(title) == kind and kind in KINDS
