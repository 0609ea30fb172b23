"""Several processes of one test: started, given the same work, and asked for what each has found."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
START = """
import os, pickle, sys, warnings
import torch, torch.distributed as dist
torch.set_num_threads(1)
warnings.simplefilter("ignore")
sys.path.insert(0, {root!r})
import importlib
rank, size, place, module, name = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
dist.init_process_group("gloo", init_method="file://" + place + "/meeting", rank=rank, world_size=size)
found = getattr(importlib.import_module(module), name)(rank, place)
with open(f"{{place}}/found.{{rank}}", "wb") as stream:
    pickle.dump(found, stream)
dist.destroy_process_group()
"""


def start(work, place, size=2):
    """Begin work, a function of a module, in several processes: each is given its rank and a folder."""
    Path(place, "meeting").unlink(missing_ok=True)
    command = [sys.executable, "-c", START.format(root=str(ROOT))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    told = [str(size), str(place), work.__module__, work.__name__]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return [subprocess.Popen([*command, str(rank), *told], env=environment, **pipes) for rank in range(size)]


def finish(processes, place):
    """Wait for all of them; return what each has found, by rank."""
    for process in processes:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    return [pickle.loads(Path(place, f"found.{rank}").read_bytes()) for rank in range(len(processes))]
