"""The same pass by several processes of one machine, or by the workers of a Ray cluster."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import connection, get_context, parent_process
from typing import Any

import torch

from carre.backend.processes import portable
from carre.boundary import ArgumentError, checked_integer
from carre.files import needed
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
    watch = Watch(replace(task, memory=None if task.memory is None else task.memory // count), progress)
    which, of = task.shard
    shards = [(which + of * k, of * count) for k in range(min(count, len(task.parts)))]
    # Another one, without what this one has found out meanwhile.
    context, packed = get_context("spawn"), pickle.dumps(replace(watch.task))
    n_threads = max(1, torch.get_num_threads() // count)
    workers: list[tuple[Any, Any]] = []
    try:
        for k, shard in enumerate(shards):
            ours, theirs = context.Pipe(duplex=False)
            device = devices[k % len(devices)] if devices else None
            worker = context.Process(target=_work, args=(packed, shard, device, n_threads, theirs), daemon=True)
            worker.start()
            theirs.close()
            workers.append((worker, ours))
        _listen([ours for _, ours in workers], watch)
    except BaseException:
        for worker, _ in workers:
            worker.terminate()
        raise
    finally:
        for worker, ours in workers:
            worker.join()
            ours.close()
    return watch.done()


def _listen(pipes: list[Any], watch: Watch) -> None:
    """Hear of rows until all are done; raise what any of them met, or that it has died."""
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
            if heard is None:
                pipes = [other for other in pipes if other is not pipe]
            else:
                watch.add(heard)


def _work(packed: bytes, shard: tuple[int, int], device: str | None, n_threads: int, told: Any) -> None:
    """Do a share of the work in a process of its own."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Asked to end, it removes what it has begun.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    torch.set_num_threads(n_threads)
    with warnings.catch_warnings(), suppress(KeyboardInterrupt):
        # What there is to be warned of, the first process has said.
        warnings.simplefilter("ignore")
        try:
            task: MapTask = pickle.loads(packed)
            task = replace(task, shard=shard, geometry=task.geometry.to(device) if device else task.geometry)
            for part in task.open_parts:
                task.write(part, told.send)
            told.send(None)
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
    needed("ray.data", "Ray is needed for that", "ray")
    ray = needed("ray", "Ray is needed for that", "ray")
    watch = Watch(task, progress)
    if not watch.waiting:
        return watch.done()
    if not ray.is_initialized():
        # It is ours alone then, and what it logs of itself is of no use.
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        ray.init(log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    names = [part.name for part in watch.waiting]
    resources = ray.cluster_resources()
    on_gpu = resources.get("GPU", 0) >= 1 and task.geometry.device.type == "cuda"
    most = int(resources.get("GPU" if on_gpu else "CPU", 1))
    count = most if n_workers is None else checked_integer(n_workers, name="n_workers", least=1)
    ray.data.DataContext.get_current().enable_progress_bars = False
    parts = ray.data.from_items([{"part": name} for name in names], override_num_blocks=len(names))
    packed = pickle.dumps(replace(watch.task, geometry=task.geometry.to("cpu")))
    done = parts.map(
        PartWriter,
        fn_constructor_args=(packed, "cuda" if on_gpu else "cpu"),
        compute=ray.data.ActorPoolStrategy(size=min(count, len(names))),
        num_cpus=1,
        num_gpus=1 if on_gpu else 0,
    )
    for row in done.iter_rows():
        watch.add(int(row["n_rows"]))
    return watch.done()


class PartWriter:
    """Writes the files that it is told of; a worker of Ray makes one of them."""

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
