"""What the code for GPUs is worth, read from its machine code without a GPU: `make gpu-report`.

    python benchmarks/cuda/gpu_report.py [NETWORK ...] [--pretrained FOLDER] [--precision fp16]

Networks are named as `cases.py` says: `bert_base@512*16`, `resnet50*32:int8`. They are compiled for A100, L4, H100 and
B200; with names, their kernels are listed. Without names it takes those in WHOLE and the pretrained networks of FOLDER,
and writes three pages of results: cuda.md, cuda_roofline.md and cuda_main_loops.md. Needs `cuobjdump` and `nvdisasm`
of the CUDA toolkit.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "cuda")]

from cases import Case  # noqa: E402
from conditions import Conditions, write_page  # noqa: E402
from execution_pipes import PIPES  # noqa: E402
from kernel_records import Kernel, NotCompiled, records_of  # noqa: E402
from real_networks import NETWORKS as PRETRAINED  # noqa: E402
from report import table  # noqa: E402
from small_network_agreement import agreement  # noqa: E402

from nnefc.targets.machine.cuda.capabilities import default_gpu  # noqa: E402

WHOLE = (
    "resnet50*32",
    "bert_base*16",
    "bert_base@512",
    "bert_base@512*16",
    "llama_block@512",
    "llama_block@1+512",
    "decoder_1b@512",
    "decoder_1b@1+512",
    "mobilenet_v2*32",
    "resnet50*32:int8",
    "bvlc_alexnet*32",
    "densenet121*32",
    "inception_v1*32",
    "inception_v2*32",
    "shufflenet*32",
    "squeezenet*32",
    "vgg19*32",
    "zfnet512*32",
    "mobilenet_v1*32",
    "efficientnet_b0*32",
    "yolov4_tiny",
    "resnet18_batch8",
    "unet*8",
    "vit_b16",
    "lstm",
    "gru",
    "mlp*32",
)
IN_DETAIL = ("resnet50*32", "bert_base*16")
"""Networks whose kernels the pages list, for DETAILED alone."""
DETAILED = (80, 90)

TENSOR_SHARE = 0.7
ROOFLINE_SHARES = {"bert_base@512": 0.8, "bert_base@512*16": 0.8}
ROOFLINE_SHARE = 0.75
LAUNCHES = {"resnet50*32": 54, "bert_base*16": 7, "bert_base@512": 7, "bert_base@512*16": 7}
"""Goals: the share of tensor cores in main loops, that of the roofline in predictions (ROOFLINE_SHARE for networks that
are not listed), and launches, of BERT those of a layer."""

_BEFORE = {"resnet50*32": ("87", "16 of 31"), "bert_base*16": ("14", "")}
"""Launches, of BERT of a layer, and kernels with narrow accesses in main loops, as `cuobjdump` showed for sm_90 when
tensors were in row-major order."""

_T = TypeVar("_T")

Found = Mapping[str, Mapping[int, Sequence[Kernel]]]
"""Kernels by the word for a network, and by architecture."""


@dataclass(frozen=True)
class Totals:
    """What a run of a network takes on one architecture; launches whose size depends on data have no time.

    Attributes:
        kernels: by which instructions of tensor cores they multiply; "" without any.
        launches, open_launches: of a run, and those among them whose number of blocks depends on data.
        roofline, predicted: milliseconds.
        multiply_adds, bytes: of a run.
        loops: kernels with a main loop.
        narrow: those among them with accesses of two bytes or less in it.
        tensor, busiest, fetching: cycles of all iterations of main loops: in which tensor cores are busy, the busiest
            pipe is, and the same with fetches from the second cache.
        slots: instructions of main loops, by pipe.
        fetched, products: bytes that main loops fetch, and their tensor-core instructions.
        wavefronts, conflicts, unknown: cycles of shared memory, those of conflicts, and accesses without an address.
    """

    kernels: Mapping[str, str]
    launches: int
    open_launches: int
    roofline: float
    predicted: float
    multiply_adds: float
    bytes: float
    loops: int
    narrow: int
    tensor: float
    busiest: float
    fetching: float
    slots: Mapping[str, float]
    fetched: float
    products: float
    wavefronts: float
    conflicts: float
    unknown: int

    @classmethod
    def of(cls, kernels: Sequence[Kernel]) -> Totals:
        """Returns the totals of a network's kernels."""
        timed = [kernel for kernel in kernels if kernel.blocks]
        per_ms = kernels[0].gpu.clock_ghz * 1e6 if kernels else 1.0
        looping = [(kernel, kernel.work.loop) for kernel in timed if kernel.iterations and kernel.work.loop]
        main = {kernel.name: loop for kernel in kernels if (loop := kernel.work.loop) and loop.is_loop}
        cycles = [(kernel.iterations, kernel.loop_cycles) for kernel, _ in looping]
        return cls(
            {kernel.name: instruction_of(kernel) for kernel in kernels},
            sum(kernel.launches for kernel in kernels),
            sum(kernel.launches for kernel in kernels if not kernel.blocks),
            sum(kernel.launches * kernel.prediction.roofline for kernel in timed) / per_ms,
            sum(kernel.launches * kernel.prediction.cycles for kernel in timed) / per_ms,
            sum(kernel.launches * kernel.work.multiply_adds for kernel in timed),
            sum(kernel.launches * kernel.work.bytes for kernel in timed),
            len(main),
            sum(loop.narrow > 0 for loop in main.values()),
            sum(times * each["tensor"] for times, each in cycles),
            sum(times * busiest(each)[1] for times, each in cycles),
            sum(times * max(each.values()) for times, each in cycles),
            {pipe: sum(kernel.iterations * loop.slots(pipe) for kernel, loop in looping) for pipe in PIPES},
            sum(kernel.iterations * loop.fetched_bytes for kernel, loop in looping),
            sum(kernel.iterations * loop.products / (4 if loop.has_warpgroups else 1) for kernel, loop in looping),
            sum(kernel.iterations * loop.wavefronts for kernel, loop in looping),
            sum(kernel.iterations * loop.conflicts for kernel, loop in looping),
            sum(loop.unknown for loop in main.values()),
        )

    @property
    def share(self) -> float:
        """Returns the roofline's part of the prediction."""
        return self.roofline / self.predicted if self.predicted else 1.0

    @property
    def tensor_share(self) -> float:
        """Returns the part of the main loops' cycles in which tensor cores are busy, if data are there in time."""
        return self.tensor / self.busiest if self.busiest else 1.0


def busiest(cycles: Mapping[str, float]) -> tuple[str, float]:
    """Returns the pipe that an iteration occupies longest, and its cycles; fetches do not count."""
    pipe = max((name for name in cycles if name != "fetch"), key=lambda name: cycles[name])
    return pipe, cycles[pipe]


def instruction_of(kernel: Kernel) -> str:
    """Returns what a kernel multiplies by: newer devices have `mma.sync` in the same kernels."""
    work = kernel.work
    if work.has_tensor_memory:
        return "tcgen05"
    return "wgmma" if work.has_warpgroups else "mma.sync" if work.has_matrices else ""


def of_run(word: str, kernels: Sequence[Kernel]) -> int:
    """Returns the launches of a run; of BERT those of a layer, which has one attention."""
    launches = sum(kernel.launches for kernel in kernels)
    layers = sum(kernel.launches for kernel in kernels if "attention" in kernel.name)
    return launches // layers if word.startswith("bert") and layers else launches


def goals(found: Found) -> list[str]:
    """Returns a line for each network: what was aimed at, and the figures of the four architectures."""
    rows = []
    for word, kernels in found.items():
        totals = {number: Totals.of(own) for number, own in kernels.items()}
        wanted = ROOFLINE_SHARES.get(word, ROOFLINE_SHARE)
        launches = [of_run(word, own) for own in kernels.values()]
        limit = LAUNCHES.get(word)
        rows.append(
            [
                word,
                _verdict(totals.values(), lambda each: f"{each.narrow} of {each.loops}", lambda each: not each.narrow),
                _verdict(
                    [each for each in totals.values() if each.busiest],
                    lambda each: f"{each.tensor_share:.0%}",
                    lambda each: each.tensor_share >= TENSOR_SHARE,
                ),
                _verdict(totals.values(), lambda each: f"{each.share:.0%}", lambda each, aim=wanted: each.share >= aim),
                _verdict(launches, str, lambda count, most=limit: most is None or count <= most)
                if limit
                else " / ".join(map(str, launches)),
            ]
        )
    head = ["network", "narrow accesses", "tensor cores in main loops", "roofline of the prediction", "launches"]
    return table(head, rows, names=5)


def _verdict(values: Iterable[_T], text: Callable[[_T], str], holds: Callable[[_T], bool]) -> str:
    """Returns the figures, after `yes` if all reach a goal, or `no`."""
    each = list(values)
    if not each:
        return ""
    return f"{'yes' if all(map(holds, each)) else 'no'}: {' / '.join(map(text, each))}"


def progress(found: Found) -> list[str]:
    """Returns old launches next to new ones, of the networks that have some."""
    rows = []
    for word, (launches, narrow) in _BEFORE.items():
        if word in found:
            now = " to ".join(map(str, sorted({of_run(word, own) for own in found[word].values()})))
            rows.append([word, launches, now, narrow])
    return table(["network", "launches before", "now", "narrow before"], rows)


def taken(found: Found) -> list[str]:
    """Returns what the kernels of each network take at most, by architecture."""
    rows = []
    for word, by_architecture in found.items():
        for number, kernels in by_architecture.items():
            own = {kernel.name: kernel for kernel in kernels}.values()
            by = [instruction_of(kernel) for kernel in own]
            numbers = (
                *(sum(kernel.launches for kernel in kernels), len(own)),
                *(by.count(name) for name in ("tcgen05", "wgmma", "mma.sync")),
                sum(kernel.boxes for kernel in own),
                max((kernel.registers for kernel in own), default=0),
                max((kernel.shared_bytes for kernel in own), default=0),
                sum(kernel.spilled_bytes > 0 for kernel in own),
                max((kernel.spilled_bytes for kernel in own), default=0),
            )
            rows.append([word, f"sm_{number}", *map(str, numbers)])
    head = ["network", "architecture", "launches", "kernels", "`tcgen05`", "`wgmma`", "`mma.sync`", "boxes"]
    return table([*head, "max registers", "max shared bytes", "spilling", "max spilled bytes"], rows, names=2)


def predicted(found: Found) -> list[str]:
    """Returns the predicted time of each network, by device."""
    rows = []
    for word, by_architecture in found.items():
        for number, kernels in by_architecture.items():
            gpu, of = default_gpu(number), Totals.of(kernels)
            seconds = of.predicted / 1e3
            rate = max(gpu.tensor_multiply_adds, gpu.warpgroup_multiply_adds, gpu.tensor_memory_multiply_adds)
            peak = 2e-3 * gpu.processors * rate * gpu.clock_ghz
            tflops, gb = (2e-12 * of.multiply_adds / seconds, 1e-9 * of.bytes / seconds) if seconds else (0.0, 0.0)
            rows.append(
                [
                    *(word, gpu.name, str(of.launches) + ("*" if of.open_launches else "")),
                    *(f"{of.roofline:.3f}", f"{of.predicted:.3f}", f"{of.share:.0%}"),
                    f"{of.launches * gpu.launch_cycles / gpu.clock_ghz / 1e6:.3f}",
                    *(f"{tflops:.1f}", f"{tflops / peak:.0%}", f"{gb:,.0f}", f"{gb / gpu.memory_gb_per_s:.0%}"),
                ]
            )
    head = ["network*batch", "device", "launches", "roofline, ms", "predicted, ms", "share", "launches, ms"]
    return table([*head, "TFLOP/s", "of the peak", "GB/s", "of the peak"], rows, names=2)


def loops(found: Found) -> list[str]:
    """Returns what the main loops of each network are made of, by architecture."""
    rows = []
    for word, by_architecture in found.items():
        for number, kernels in by_architecture.items():
            of = Totals.of(kernels)
            slots, wavefronts = sum(of.slots.values()), of.wavefronts + of.conflicts
            without = sum(by != "" for by in of.kernels.values()) - of.loops
            row = [word, f"sm_{number}", str(of.loops), str(without), str(of.narrow)]
            if slots:
                row += [
                    *(f"{of.slots[pipe] / slots:.0%}" for pipe in PIPES),
                    f"{of.fetched / of.products:,.0f}",
                    (f"{of.conflicts / wavefronts:.1%}" if wavefronts else "") + ("*" if of.unknown else ""),
                    f"{of.tensor_share:.0%}",
                    f"{of.tensor / of.fetching:.0%}",
                ]
            rows.append(row + [""] * (9 + len(PIPES) - len(row)))
    head = ["network*batch", "architecture", "loops", "without", "narrow", *PIPES, "bytes a product", "conflicts"]
    return table([*head, "tensor cores", "with fetches"], rows, names=2)


def kernel_table(kernels: Sequence[Kernel]) -> list[str]:
    """Returns a line for each kernel: what it takes, and the prediction of a launch."""
    rows = []
    for kernel in kernels:
        numbers = [str(kernel.launches), instruction_of(kernel), str(kernel.registers), str(kernel.shared_bytes)]
        row = [f"`{kernel.name}`", *numbers, str(kernel.spilled_bytes), f"{kernel.occupancy:.0%}"]
        if kernel.blocks:
            of, per_us = kernel.prediction, kernel.gpu.clock_ghz * 1e3
            share = of.roofline / of.cycles if of.cycles else 1.0
            row += [of.bound, f"{of.roofline / per_us:.2f}", f"{of.cycles / per_us:.2f}", f"{share:.0%}"]
            row.append(f"{of.balance:.0%}")
        rows.append(row + [""] * (12 - len(row)))
    head = ["kernel", "launches", "by", "registers", "shared bytes", "spilled", "occupancy", "bound by"]
    return table([*head, "roofline, µs", "predicted, µs", "share", "balance"], rows)


def loop_table(kernels: Sequence[Kernel]) -> list[str]:
    """Returns a line for each kernel with tensor cores: its main loop."""
    rows = []
    for kernel in {kernel.name: kernel for kernel in kernels}.values():
        if (loop := kernel.work.loop) is None:
            continue
        row = [f"`{kernel.name}`", "" if loop.is_loop else "none", *(str(loop.slots(pipe)) for pipe in PIPES)]
        per_product = loop.fetched_bytes * (4 if loop.has_warpgroups else 1) / max(1, loop.products)
        row += [str(loop.narrow), f"{per_product:,.0f}", f"{loop.wavefronts:.0f}"]
        row.append(f"{loop.conflicts:.1f}" + ("*" if loop.unknown else ""))
        if kernel.iterations:
            cycles = kernel.loop_cycles
            pipe, longest = busiest(cycles)
            row += [f"{cycles['tensor']:.0f}", pipe, f"{longest:.0f}", f"{cycles['fetch']:.0f}"]
            row += [f"{cycles['tensor'] / longest:.0%}", f"{cycles['tensor'] / max(cycles.values()):.0%}"]
        rows.append(row + [""] * (20 - len(row)))
    head = ["kernel", "loop", *PIPES, "narrow", "bytes a product", "wavefronts", "conflicts", "cycles of tensor cores"]
    return table([*head, "busiest pipe", "its cycles", "of fetches", "tensor cores", "with fetches"], rows, names=2)


_NO_GPU = "Nothing here was run on a GPU, and nothing was timed."
_ABOUT = [
    _NO_GPU,
    "Networks are compiled for A100 (sm_80), L4 (sm_89), H100 (sm_90a) and B200 (sm_100a), each alone, in `fp16`,",
    "or quantized where the name ends in `:int8`; `@512` are tokens, `@1+512` one token with 512 in the caches,",
    "`*32` is a batch. Figures of four architectures are in this order.",
]
_GOALS = [
    "*Narrow accesses*: of the kernels with a main loop of tensor cores, those that load or store two bytes or less",
    "at once in it. *Tensor cores in main loops*: the part of the loops' cycles in which tensor cores are busy, if",
    "waiting is hidden; the goal is 70 %. *Roofline of the prediction*: the goal is 75 %, and 80 % for BERT with",
    "512 tokens. Of BERT the launches are those of a layer; the goals are 54 for ResNet-50 and 7 for BERT. [Main",
    "loops](cuda_main_loops.md) and [predicted times](cuda_roofline.md) have the figures behind these, and say how",
    "they come about.",
]
_TIMES = [
    _NO_GPU,
    "Each launch is predicted by a roofline model, which [`roofline_model.py`](../cuda/roofline_model.py) states,",
    "from the sizes of its buffers, its multiply-adds, the instructions of its main loop in the machine code and",
    "their accesses to shared memory, and the device of [`devices.py`](../../targets/machine/gpu/devices.py) that",
    "the code is tuned for. Networks are in `fp16`, or quantized where their name ends in `:int8`. *Roofline* is",
    "the larger of memory and products, at the rate of the instructions that a kernel multiplies by; *share* is",
    "that part of the prediction. The model leaves out waiting within a launch, so predictions are lower bounds:",
    "[published times](cuda_published.md) of products are longer. *TFLOP/s* and *GB/s* are those of the prediction,",
    "next to the device's peaks, of 16-bit floats. Launches of branches and of a loop's body count once; those",
    "whose size depends on data (\\*) have no time. A gather counts as if it read all rows of its table.",
]
_LOOPS = [
    _NO_GPU,
    "Of each kernel with tensor-core instructions: the innermost loop with most of them, in the machine code",
    "(SASS). *Without*: kernels that have none, because the depth is one tile. *Narrow*: loops that load or store",
    "two bytes or less at once. Then the kinds of the instructions that these loops issue, weighted by their",
    "iterations: *tensor* cores; *shared* memory and exchanges between threads; copies, loads and stores of device",
    "*memory*; *FMA*; *ALU*; *special* functions; *uniform* registers; *control*. *Bytes a product*: what is",
    "fetched for each tensor-core instruction of a warp, or of a warpgroup. *Conflicts*: the part of the cycles of",
    "shared memory that bank conflicts take, by the addresses that the machine code computes for each",
    "thread ([how](../cuda/shared_addresses.py)); \\* where some are unknown. Operands of `wgmma` and `tcgen05` are",
    "read by tensor cores from swizzled tiles, and have no addresses of threads. *Tensor cores*: cycles of tensor",
    "cores over those of the busiest pipe ([rates](../cuda/execution_pipes.py)): what they reach if waiting is",
    "hidden. *With fetches*: the same, if the second cache is a pipe, too.",
]


@click.command()
@click.argument("networks", nargs=-1)
@click.option("--precision", default="fp16")
@click.option(
    "--pretrained",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder with the files of real_networks.py.",
)
def main(networks: tuple[str, ...], precision: str, pretrained: Path | None) -> None:
    """Report on NETWORKS, or write the pages of results."""
    if missing := [tool for tool in ("cuobjdump", "nvdisasm") if shutil.which(tool) is None]:
        raise click.ClickException(f"{' and '.join(missing)} of the CUDA toolkit must be on the PATH")
    words = networks or (*WHOLE, *(PRETRAINED if pretrained else ()))
    found: dict[str, Mapping[int, Sequence[Kernel]]] = {}
    failed: dict[str, str] = {}
    for word in words:
        Case.of(word)
        click.echo(word, err=True)
        try:
            found[word] = records_of(word, precision, pretrained)
        except NotCompiled as error:
            failed[word] = str(error).replace("|", "\\|")
            click.echo(f"  {error}", err=True)
    if networks:
        click.echo("\n".join(report(found, failed)))
    else:
        write_pages(found, failed)


def report(found: Found, failed: Mapping[str, str]) -> list[str]:
    """Returns the tables of some networks, with all their kernels."""
    lines = [*goals(found), "", *predicted(found), "", *loops(found), *_without_code(failed)]
    for word, by_architecture in found.items():
        for number, kernels in by_architecture.items():
            lines += ["", f"## {word}, sm_{number}", "", *kernel_table(kernels), "", *loop_table(kernels)]
    return lines


def write_pages(found: Found, failed: Mapping[str, str]) -> None:
    """Writes the three pages."""
    detailed = [(word, number) for word in IN_DETAIL if word in found for number in DETAILED]
    conditions = Conditions.now()
    overview = [
        *_ABOUT,
        *("", "## Goals", "", *_GOALS, "", *goals(found), *_without_code(failed)),
        *("", *agreement()),
        *("", "## Before and now", "", "*Before*, tensors were in row-major order, attention was two products and a"),
        *("softmax, and all products were `mma.sync`.", "", *progress(found)),
        *("", "## What the kernels take", "", "How many kernels multiply by which instructions, and fetch *boxes* by"),
        *("bulk copies; shared memory is that of a block.", "", *taken(found)),
    ]
    times = [*_TIMES, "", *predicted(found), *_without_code(failed)]
    main_loops = [*_LOOPS, "", *loops(found), *_without_code(failed)]
    for word, number in detailed:
        title = ("", f"## {word}, sm_{number}", "")
        times += [*title, *kernel_table(found[word][number])]
        main_loops += [*title, *loop_table(found[word][number])]
    write_page("cuda", "Code for GPUs, without a GPU", conditions, overview)
    write_page("cuda_roofline", "Predicted times on GPUs", conditions, times)
    write_page("cuda_main_loops", "Main loops of tensor cores", conditions, main_loops)


def _without_code(failed: Mapping[str, str]) -> list[str]:
    """Returns why some networks are not in the tables."""
    return ["", *table(["network", "not in the tables"], failed.items(), names=2)] if failed else []


if __name__ == "__main__":
    main()
