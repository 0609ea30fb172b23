"""The same pass by several processes of one machine, or by the workers of a Ray cluster."""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import signal
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import connection, get_context, parent_process
from typing import Any

import torch

from carre.backend.processes import portable
from carre.boundary import ArgumentError, checked_integer
from carre.mapping._parts import PAGE
from carre.mapping.task import Mapped, MapProgress, MapTask, Watch


def map_in_processes(
    task: MapTask,
    n_processes: int,
    *,
    devices: Sequence[str] = (),
    progress: Callable[[MapProgress], None] | None = None,
) -> Mapped:
    """Answer at all rows by several processes, each of which does its share of the files.

    Args:
        task: What is to be done.
        n_processes: How many processes.
        devices: Where they compute, one after the other; none leaves all where the geometry is.
        progress: Told how far the work is, and how fast.

    Example:
        >>> import carre, numpy as np
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from carre.mapping import Asked, MapTask, map_in_processes
        >>> geometry = carre.fit(np.eye(3), max_steps=1, width=16, bandwidth=0.5, verbose=False)
        >>> with TemporaryDirectory() as folder:
        ...     task = MapTask(geometry, np.eye(3), Path(folder, "out"), Asked.of(geometry, ["dimension"]))
        ...     map_in_processes(task, 1).n_rows
        3
    """
    count = checked_integer(n_processes, name="n_processes", least=1, most=1024)
    if count == 1:
        return replace(task, geometry=task.geometry.to(devices[0]) if devices else task.geometry).run(progress)
    task, start = (
        replace(task, memory=None if task.memory is None else task.memory // count).begin(),
        time.perf_counter(),
    )
    waiting = task.open_parts
    which, of = task.shard
    shards = [(which + of * k, of * count) for k in range(min(count, len(task.parts)))]
    packed = pickle.dumps(replace(task, data=_plain(task.data)))
    n_threads = max(1, torch.get_num_threads() // count)
    context, watch = get_context("spawn"), Watch(sum(part.n_rows for part in waiting), progress)
    workers: list[tuple[Any, Any]] = []
    try:
        for k, shard in enumerate(shards):
            ours, theirs = context.Pipe(duplex=False)
            device = devices[k % len(devices)] if devices else None
            worker = context.Process(target=_work, args=(packed, shard, device, n_threads, theirs), daemon=True)
            worker.start()
            theirs.close()
            workers.append((worker, ours))
        n_rows = _listen([ours for _, ours in workers], watch)
    except BaseException:
        for worker, _ in workers:
            worker.terminate()
        raise
    finally:
        for worker, ours in workers:
            worker.join()
            ours.close()
    n_parts = len(task.parts)
    return Mapped(task.out, n_parts, n_parts - len(waiting), n_rows, time.perf_counter() - start)


def _plain(data: Any) -> Any:
    return os.fspath(data) if isinstance(data, os.PathLike) else data


def _listen(pipes: list[Any], watch: Watch) -> int:
    """Hear of rows until all are done; raise what any of them met, or that it has died."""
    n_rows = 0
    while pipes:
        ready: list[Any] = connection.wait(pipes)
        for pipe in ready:
            try:
                heard = pipe.recv()
            except EOFError:
                must = "a process that answered at rows has died; files that are finished stay. Give fewer processes"
                raise RuntimeError(f"{must}, if memory was short, and run the same again") from None
            if isinstance(heard, Exception):
                raise heard
            if isinstance(heard, Mapped):
                n_rows += heard.n_rows
                pipes = [other for other in pipes if other is not pipe]
            else:
                watch.add(heard)
    return n_rows


def _work(packed: bytes, shard: tuple[int, int], device: str | None, n_threads: int, told: Any) -> None:
    """Do a share of the work in a process of its own."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Asked to end, it removes what it has begun.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    torch.set_num_threads(n_threads)
    before = 0

    def tell(progress: MapProgress) -> None:
        nonlocal before
        told.send(progress.n_rows - before)
        before = progress.n_rows

    with warnings.catch_warnings(), suppress(KeyboardInterrupt):
        # What there is to be warned of, the first process has said.
        warnings.simplefilter("ignore")
        try:
            task: MapTask = pickle.loads(packed)
            task = replace(task, shard=shard, geometry=task.geometry.to(device) if device else task.geometry)
            told.send(task.run(tell))
        except Exception as error:
            told.send(portable(error))


def _end_with_parent() -> None:
    """End at once when the process that began this one has ended, by whatever means."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def map_on_ray(
    task: MapTask, n_workers: int | None = None, *, progress: Callable[[MapProgress], None] | None = None
) -> Mapped:
    """Answer at all rows by the workers of a Ray cluster, to which files are handed, not rows.

    The cluster is the one that Ray is connected to, or that its environment names, or a new one on this machine. Data
    and answers lie where all of its machines can reach them.

    Args:
        task: What is to be done.
        n_workers: How many workers; None for one on each GPU, or core, of the cluster.
        progress: Told how far the work is, and how fast.

    Example:
        >>> map_on_ray(task)  # doctest: +SKIP
        Mapped(out=Path('answers'), n_parts=16, n_there=0, n_rows=8000000, seconds=42.0)
    """
    ray = _import_ray()
    task, start = task.begin(), time.perf_counter()
    waiting = task.open_parts
    if not waiting:
        return Mapped(task.out, len(task.parts), len(task.parts), 0, 0.0)
    if not ray.is_initialized():
        # It is ours alone then, and what it logs of itself is of no use.
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        ray.init(log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    names = [part.name for part in waiting]
    resources = ray.cluster_resources()
    on_gpu = resources.get("GPU", 0) >= 1 and task.geometry.device.type == "cuda"
    most = int(resources.get("GPU" if on_gpu else "CPU", 1))
    count = most if n_workers is None else checked_integer(n_workers, name="n_workers", least=1)
    ray.data.DataContext.get_current().enable_progress_bars = False
    parts = ray.data.from_items([{"part": name} for name in names], override_num_blocks=len(names))
    packed = pickle.dumps(replace(task, data=_plain(task.data), geometry=task.geometry.to("cpu")))
    done = parts.map(
        PartWriter,
        fn_constructor_args=(packed, "cuda" if on_gpu else "cpu"),
        compute=ray.data.ActorPoolStrategy(size=min(count, len(names))),
        num_cpus=1,
        num_gpus=1 if on_gpu else 0,
    )
    watch = Watch(sum(part.n_rows for part in waiting), progress)
    for row in done.iter_rows():
        watch.add(int(row["n_rows"]))
    return Mapped(task.out, len(task.parts), len(task.parts) - len(waiting), watch.n_done, time.perf_counter() - start)


class PartWriter:
    """Writes the files that it is told of; a worker of Ray makes one of them.

    Args:
        packed: What is to be done.
        device: Where to compute.
    """

    def __init__(self, packed: bytes, device: str) -> None:
        task: MapTask = pickle.loads(packed)
        self.task = replace(task, geometry=task.geometry.to(device))
        if not (self.task.out / PAGE).is_file():
            must = "lie where all machines of the cluster reach it"
            raise ArgumentError("out", must, got=f"{str(self.task.out)!r}, which another one does not see")
        self.task.check()
        self.parts = {part.name: part for part in self.task.every_part}

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Write a file, unless it is there."""
        part = self.parts[row["part"]]
        is_there = (self.task.out / part.name).is_file()
        return {"part": part.name, "n_rows": 0 if is_there else self.task.write(part)}


def _import_ray() -> Any:
    try:
        importlib.import_module("ray.data")
        return importlib.import_module("ray")
    except ImportError as error:
        raise ImportError("Ray is needed for that; run: pip install 'carre[ray]'") from error
