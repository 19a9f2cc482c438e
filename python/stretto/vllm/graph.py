"""Finds all-reduces with an RMSNorm after them in a graph of vLLM's compiler, and puts one operator of `stretto.torch`
in their place.

It looks at nodes of a `torch.fx` graph after AOTAutograd, in which vLLM's own operators are still whole. Targets are
known by their names, and neither torch nor vLLM is imported.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from stretto.engines import fused

_ALL_REDUCE = "vllm.all_reduce.default"
_NORMS = {
    "vllm_ir.rms_norm.default": ("x", "weight", "epsilon", "variance_size"),
    "vllm_ir.fused_add_rms_norm.default": ("x", "x_residual", "weight", "epsilon", "variance_size"),
}
# Of vLLM's quantisation to float8_e4m3fn with one given scale, where its compiler writes it out: see `_written_out`.
_FP8, _FP8_LARGEST = "torch.float8_e4m3fn", 448.0
_FP8_OPERATOR = "_C.static_scaled_fp8_quant.default"
_GIVEN = ("placeholder", "get_attr")


@dataclass(frozen=True)
class Operators:
    """Of `stretto.torch`, as a graph calls them."""

    norm: Any
    norm_fp8: Any


@dataclass(frozen=True)
class _Step:
    """An all-reduce and the norm of its result, as nodes."""

    reduced: Any
    norm: Any
    input: Any
    residual: Any
    weight: Any
    epsilon: float
    group: str  # as the operators call it
    normalised: list[Any]
    added: list[Any]


def fuse(graph: Any, name_of: Callable[[str], str], operators: Operators, refused: Callable[[str], None]) -> int:
    """How many were replaced. `name_of`: the operators' name of a vLLM group; nothing for one that is not open.
    `refused` is told why a step was left as it is.
    """
    count = 0
    for node in list(graph.nodes):
        step = _step(node, name_of)
        if step is None:
            continue
        reason = _refuse(step, node)
        if reason:
            refused(reason)
            continue
        _replace(graph, step, operators)
        count += 1
    return count


def _is(node: Any, name: str) -> bool:
    return getattr(node, "op", "") == "call_function" and str(node.target) == name


def _given(node: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _step(norm: Any, name_of: Callable[[str], str]) -> _Step | None:
    names = _NORMS.get(str(norm.target)) if norm.op == "call_function" else None
    if names is None:
        return None
    given = _given(norm, names)
    reduced = given["x"]
    if not _is(reduced, _ALL_REDUCE):
        return None
    source = _given(reduced, ("tensor", "group_name"))
    group = name_of(source["group_name"])
    results = _results(norm, reduced, "x_residual" in names)
    if not group or results is None:
        return None
    input, residual = source["tensor"], given.get("x_residual")
    return _Step(reduced, norm, input, residual, given["weight"], given["epsilon"], group, *results)


def _results(norm: Any, reduced: Any, adds: bool) -> tuple[list[Any], list[Any]] | None:
    """The nodes that hold the normalised tensor, and those that hold the sum that it is made of. None where the sum
    without the residual, which the fused operator does not return, is used as well.
    """
    if not adds:
        return [norm], [reduced]
    users = list(norm.users)
    if len(reduced.users) != 1 or any(user.target is not operator.getitem for user in users):
        return None
    return [user for user in users if user.args[1] == 0], [user for user in users if user.args[1] == 1]


def _value(node: Any) -> Any:
    return None if node is None else node.meta["val"]


def _refuse(step: _Step, norm: Any) -> str:
    if _given(norm, _NORMS[str(norm.target)]).get("variance_size") is not None:
        return "a fused all-reduce and RMSNorm over a part of each token is not served"
    # The operator takes the all-reduce's place: what it reads must be there by then.
    if step.residual is None and step.weight is not None and step.weight.op not in _GIVEN:
        return "a fused all-reduce and RMSNorm with a weight that is computed is not served"
    return fused.refuse(_value(step.input), _value(step.residual), _value(step.weight))


def _replace(graph: Any, step: _Step, operators: Operators) -> None:
    quantised = _fp8(step.normalised)
    tensors = (step.input, step.residual, step.weight, None)
    how = {"epsilon": step.epsilon, "group": step.group}
    place = step.reduced if step.residual is None else step.norm
    with graph.inserting_before(place):
        if quantised is None:
            call = graph.call_function(operators.norm, tensors, how)
            results = {0: step.normalised, 1: step.added}
        else:
            last, scale, chain = quantised
            call = graph.call_function(operators.norm_fp8, (*tensors, scale), {**how, "dtype": last.meta["val"].dtype})
            results = {0: [last], 2: step.added}
        for index, nodes in results.items():
            for node in nodes:
                _stand_in(graph, call, index, node)
    dead = [*(chain if quantised is not None else []), *step.normalised, *step.added, step.norm, step.reduced]
    for node in dict.fromkeys(dead):
        if not node.users:
            graph.erase_node(node)


def _stand_in(graph: Any, call: Any, index: int, node: Any) -> None:
    """Result `index` of the call for all who use the node."""
    result = graph.call_function(operator.getitem, (call, index))
    result.meta.update(node.meta)
    node.replace_all_uses_with(result)


def _only_user(node: Any) -> Any:
    users = list(node.users)
    return users[0] if len(users) == 1 else None


def _fp8(normalised: list[Any]) -> tuple[Any, Any, list[Any]] | None:
    """The node that holds the normalised tensor in 8 bits, its scale, and all nodes on the way, last first; None where
    the normalised tensor is used otherwise.
    """
    user = _only_user(normalised[0]) if len(normalised) == 1 else None
    if user is None:
        return None
    found = _by_operator(user, normalised[0]) or _written_out(normalised[0])
    if found is None:
        return None
    last, scale, _ = found
    fits = scale.op in _GIVEN and str(_value(scale).dtype) == "torch.float32" and _value(scale).numel() == 1
    return found if fits and str(_value(last).dtype) == _FP8 else None


def _by_operator(user: Any, normalised: Any) -> tuple[Any, Any, list[Any]] | None:
    """vLLM's kernel, which writes to a tensor that it is given and is called through `auto_functionalized`."""
    if not user.args or str(user.args[0]) != _FP8_OPERATOR or user.kwargs.get("input") is not normalised:
        return None
    results = [one for one in user.users if one.target is operator.getitem and one.args[1] == 1]
    if len(results) != 1 or len(user.users) != 1:
        return None
    return results[0], user.kwargs["scale"], [results[0], user]


def _written_out(normalised: Any) -> tuple[Any, Any, list[Any]] | None:
    """The same as arithmetic: (float32), times the scale's reciprocal, limited, float8_e4m3fn."""
    chain = list(_chain(normalised))
    if chain and _is(chain[0], "prims.convert_element_type.default"):
        if str(chain[0].args[1]) != "torch.float32":
            return None
        widened, chain = [chain[0]], chain[1:]
    else:
        widened = []
    names = ("aten.mul.Tensor", "aten.clamp_min.default", "aten.clamp_max.default")
    if len(chain) < 4 or not all(_is(node, name) for node, name in zip(chain, names, strict=False)):
        return None
    product, least, largest, last = chain[:4]
    before = widened[0] if widened else normalised
    factor = product.args[1] if product.args[0] is before else product.args[0]
    limits = (least.args[1], largest.args[1])
    if not _is(factor, "aten.reciprocal.default") or limits != (-_FP8_LARGEST, _FP8_LARGEST):
        return None
    if not _is(last, "prims.convert_element_type.default") or str(last.args[1]) != _FP8:
        return None
    return last, factor.args[0], [last, largest, least, product, *widened]


def _chain(node: Any) -> Iterator[Any]:
    """The nodes that follow as each other's only users."""
    for _ in range(5):
        node = _only_user(node)
        if node is None:
            return
        yield node
