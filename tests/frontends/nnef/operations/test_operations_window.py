"""Sliding windows with and without filters against NumPy loops, all borders, both dialects, any rank."""

import math

import nnef_reference as reference
import numpy as np
import pytest
from nnef_cases import Case, check, check_expanded, check_in_both_dialects, with_share

BORDERS = ["constant", "ignore", "replicate", "reflect", "reflect-even"]


def spell(values) -> str:
    return str([tuple(int(v) for v in value) if isinstance(value, tuple) else int(value) for value in values])


class Draw:
    """Random geometry that always fits."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def shape(self, rank: int, low: int = 4, high: int = 7) -> tuple[int, ...]:
        return (
            int(self.rng.integers(1, 3)),
            int(self.rng.integers(2, 4)),
            *(int(e) for e in self.rng.integers(low, high, rank - 2)),
        )

    def array(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)

    def window(self, rank: int, pads: int = 2) -> dict:
        """size, stride, dilation, padding for `rank` axes; padding [] half of the time."""
        size = [int(v) for v in self.rng.integers(1, 4, rank)]
        stride = [int(v) for v in self.rng.integers(1, 4, rank)]
        dilation = [int(v) for v in self.rng.integers(1, 3, rank)]
        padding = []
        if self.rng.random() < 0.6:
            padding = [
                tuple(int(v) for v in self.rng.integers(0, min(pads, (f - 1) * d + 1) + (f > 1), 2))
                if f > 1
                else (0, 0)
                for f, d in zip(size, dilation, strict=True)
            ]
        return {"size": size, "stride": stride, "dilation": dilation, "padding": padding}


def fits(shape, window) -> bool:
    padding = window["padding"] or [(0, 0)] * len(shape)
    return all(
        e + p + q >= (f - 1) * d + 1 or not window["padding"]
        for e, (p, q), f, d in zip(shape, padding, window["size"], window["dilation"], strict=True)
    )


def window_text(window, keys=("size", "stride", "dilation", "padding")) -> str:
    return ", ".join(f"{key} = {spell(window[key])}" for key in keys)


def pool_cases(seed: int, spatial_only: bool) -> list[Case]:
    draw, cases = Draw(seed), []
    for number in range(15):
        rank = int(draw.rng.integers(3, 6)) if spatial_only else int(draw.rng.integers(1, 5))
        shape = draw.shape(rank) if spatial_only else tuple(int(e) for e in draw.rng.integers(3, 6, rank))
        window = draw.window(rank)
        if spatial_only:
            window["size"][:2] = window["stride"][:2] = window["dilation"][:2] = [1, 1]
            if window["padding"]:
                window["padding"][:2] = [(0, 0), (0, 0)]
        if not fits(shape, window):
            continue
        border = BORDERS[number % len(BORDERS)]
        x = draw.array(*shape)
        args = {**window, "border": border}
        options = f"{window_text(window)}, border = '{border}'"
        index = reference.argmax_pool(x, **args)
        cases += [
            Case(f"$y = box($x, {options});", {"x": x}, {"y": reference.box(x, **args)}),
            Case(f"$y = avg_pool($x, {options});", {"x": x}, {"y": reference.box(x, **args, normalize=True)}),
            Case(
                f"$y = rms_pool($x, {options});",
                {"x": x},
                {"y": np.sqrt(reference.box(x**2, **args, normalize=True))},
                1e-4,
            ),
            Case(f"$y = max_pool($x, {options});", {"x": x}, {"y": reference.max_pool(x, **args)}),
            Case(
                f"$y, $i = max_pool_with_index($x, {options});",
                {"x": x},
                {"y": reference.max_pool(x, **args), "i": index},
            ),
            Case(
                f"$i = argmax_pool($x, {options}); $y = sample($x, $i, {options});",
                {"x": x},
                {"i": index, "y": reference.sample(x, index, **args)},
            ),
        ]
    return cases


@with_share
@pytest.mark.parametrize("spatial_only", [True, False])
@pytest.mark.sample(1)
def test_pools_agree_with_the_definition(tmp_path, spatial_only, share):
    check_in_both_dialects(share(pool_cases(1 + spatial_only, spatial_only)), tmp_path)


@with_share
def test_expanded_pools_agree_with_the_definition(share):
    cases = share(pool_cases(3, spatial_only=True))
    check_expanded(cases if share is list else cases[::2])


def transposed_cases(seed: int, output_shapes: bool) -> list[Case]:
    draw, cases = Draw(seed), []
    for number in range(25):
        rank = int(draw.rng.integers(1, 5))
        shape = tuple(int(e) for e in draw.rng.integers(2, 4, rank))
        window = draw.window(rank, pads=1)
        border = BORDERS[number % len(BORDERS)]
        large = [
            (e - 1) * s + (f - 1) * d + 1 - p - q
            for e, s, f, d, (p, q) in zip(
                shape,
                window["stride"],
                window["size"],
                window["dilation"],
                window["padding"] or [(0, 0)] * rank,
                strict=True,
            )
        ]
        if window["padding"] and min(large) < 3:
            continue
        options = f"{window_text(window)}, border = '{border}'"
        args = {**window, "border": border}
        if output_shapes and number % 2:
            extra = [int(draw.rng.integers(0, s)) for s in window["stride"]]
            fixed = [max(3, a + b) for a, b in zip(large, extra, strict=True)]
            if window["padding"] and fixed != [a + b for a, b in zip(large, extra, strict=True)]:
                continue
            args["output_shape"] = fixed
            options += f", output_shape = {fixed}"
        elif not window["padding"] and min(e * s for e, s in zip(shape, window["stride"], strict=True)) < 3:
            continue
        x = draw.array(*shape)
        index = draw.rng.integers(0, math.prod(window["size"]), shape).astype(np.int32)
        for normalize in (False, True):
            cases.append(
                Case(
                    f"$y = debox($x, {options}, normalize = {str(normalize).lower()});",
                    {"x": x},
                    {"y": reference.debox(x, **args, normalize=normalize)},
                )
            )
        cases.append(
            Case(
                f"$y = desample($x, $i, {options});", {"x": x, "i": index}, {"y": reference.desample(x, index, **args)}
            )
        )
    return cases


@with_share
def test_transposed_windows_agree_with_the_definition(tmp_path, share):
    check(share(transposed_cases(5, output_shapes=True)), tmp_path)


@with_share
def test_provisional_transposed_windows_agree_with_the_definition(tmp_path, share):
    cases = share([case for case in transposed_cases(6, output_shapes=False) if "desample" not in case.statements])
    check(cases, tmp_path, "provisional")


def conv_cases(seed: int, dialect: str) -> list[Case]:
    draw, cases = Draw(seed), []
    for number in range(24):
        rank = int(draw.rng.integers(3, 6))
        window = draw.window(rank - 2)
        groups = [1, 1, 2, 0][number % 4]
        channels, multiplier = 2 * int(draw.rng.integers(1, 3)), int(draw.rng.integers(1, 3))
        shape = (int(draw.rng.integers(1, 3)), channels, *(int(e) for e in draw.rng.integers(4, 7, rank - 2)))
        if not fits(shape[2:], window):
            continue
        border = BORDERS[number % len(BORDERS)]
        count = groups or channels
        x, w = draw.array(*shape), draw.array(count * multiplier, channels // count, *window["size"])
        bias = draw.array(1, w.shape[0])
        options = f"{window_text(window, ('stride', 'dilation', 'padding'))}, border = '{border}'"
        args = {key: window[key] for key in ("stride", "dilation", "padding")} | {"border": border}
        expected = reference.conv(x, w, bias, groups=groups, **args)
        inputs = {"x": x, "w": w, "b": bias}
        known = [frozenset("wb"), frozenset("w"), frozenset()][number % 3]
        cases.append(
            Case(f"$y = conv($x, $w, $b, {options}, groups = {groups});", inputs, {"y": expected}, 1e-4, known)
        )
        if groups == 0 and dialect == "provisional":
            cases.append(Case(f"$y = planewise_conv($x, $w, $b, {options});", inputs, {"y": expected}, 1e-4))
        point = draw.array(3, w.shape[0], *[1] * (rank - 2))
        if groups == 0:
            expected = reference.conv(reference.conv(x, w, groups=0, **args), point, 0.25)
            text = f"$y = separable_conv($x, $w, $p, 0.25, {options});"
            cases.append(Case(text, {"x": x, "w": w, "p": point}, {"y": expected}, 1e-4))
    return cases


@pytest.mark.parametrize("dialect", ["final", "provisional"])
@with_share
@pytest.mark.sample(1)
def test_convolutions_agree_with_the_definition(tmp_path, dialect, share):
    check(share(conv_cases(7, dialect)), tmp_path, dialect)


def deconv_cases(seed: int, dialect: str) -> list[Case]:
    draw, cases = Draw(seed), []
    for number in range(24):
        rank = int(draw.rng.integers(3, 6))
        window = draw.window(rank - 2, pads=1)
        groups = [1, 1, 2, 0][number % 4]
        channels, made = 2 * int(draw.rng.integers(1, 3)), int(draw.rng.integers(1, 3))
        shape = (int(draw.rng.integers(1, 3)), channels, *(int(e) for e in draw.rng.integers(2, 4, rank - 2)))
        large = [
            (e - 1) * s + (f - 1) * d + 1 - p - q
            for e, s, f, d, (p, q) in zip(
                shape[2:], window["stride"], window["size"], window["dilation"],
                window["padding"] or [(0, 0)] * (rank - 2), strict=True,
            )
        ]  # fmt: skip
        target = large if window["padding"] else [e * s for e, s in zip(shape[2:], window["stride"], strict=True)]
        if min(target) < 3:
            continue
        border = BORDERS[(number // 2) % len(BORDERS)]
        count = groups or channels
        x, w = draw.array(*shape), draw.array(channels, made, *window["size"])
        bias = draw.array(1, made * count)
        args = {key: window[key] for key in ("stride", "dilation", "padding")} | {"border": border}
        options = f"{window_text(window, ('stride', 'dilation', 'padding'))}, border = '{border}'"
        if dialect == "final" and number % 3 == 0 and groups:
            extra = [int(draw.rng.integers(0, s)) for s in window["stride"]]
            fixed = [shape[0], made * count, *(a + b for a, b in zip(large, extra, strict=True))]
            if min(fixed[2:]) >= 3:
                args["output_shape"] = fixed
                options += f", output_shape = {fixed}"
        expected = reference.deconv(x, w, bias, groups=groups, **args)
        known = [frozenset("wb"), frozenset()][number % 2]
        text = f"$y = deconv($x, $w, $b, {options}, groups = {groups});"
        cases.append(Case(text, {"x": x, "w": w, "b": bias}, {"y": expected}, 1e-4, known))
        if groups == 0 and made == 1:
            plane = reference.deconv(x, w, bias, groups=0, **args)
            if dialect == "provisional":
                text = f"$y = planewise_deconv($x, $w, $b, {options});"
                cases.append(Case(text, {"x": x, "w": w, "b": bias}, {"y": plane}, 1e-4))
            point = draw.array(3, channels, *[1] * (rank - 2))
            z = draw.array(shape[0], 3, *shape[2:])
            expected = reference.deconv(reference.deconv(z, point), w, bias, groups=0, **args)
            text = f"$y = separable_deconv($x, $w, $p, $b, {options});"
            cases.append(Case(text, {"x": z, "w": w, "p": point, "b": bias}, {"y": expected}, 1e-4))
    return cases


@pytest.mark.parametrize("dialect", ["final", "provisional"])
@with_share
@pytest.mark.sample(1)
def test_deconvolutions_agree_with_the_definition(tmp_path, dialect, share):
    check(share(deconv_cases(8, dialect)), tmp_path, dialect)


def test_convolutions_of_unusual_rank_agree_with_the_definition(tmp_path):
    draw = Draw(9)
    x, w = draw.array(2, 3), draw.array(4, 3)
    cases = [Case("$y = conv($x, $w);", {"x": x, "w": w}, {"y": reference.conv(x, w)})]
    v = draw.array(3, 4)
    cases.append(Case("$y = deconv($x, $v);", {"x": x, "v": v}, {"y": reference.deconv(x, v)}))
    x, w = draw.array(1, 2, 3, 4, 3, 3), draw.array(4, 1, 2, 2, 1, 2)
    for border in BORDERS:
        pads = "padding = [(1,1), (0,1), (0,0), (1,1)]"
        text = f"$y = conv($x, $w, groups = 2, stride = [2, 1], border = '{border}', {pads});"
        args = {"groups": 2, "stride": [2, 1], "border": border, "padding": [(1, 1), (0, 1), (0, 0), (1, 1)]}
        cases.append(Case(text, {"x": x, "w": w}, {"y": reference.conv(x, w, **args)}, 1e-4))
    check(cases, tmp_path)
