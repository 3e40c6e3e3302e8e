"""Run scripts, and the jobs of pages as SLURM would, on this machine alone."""

import functools
import importlib.util
import json
import os
import pathlib
import re
import socket
import subprocess
import sys

DOCS = pathlib.Path(__file__).parents[1] / "docs"
# Stand-ins for the programs of SLURM.
PROGRAMS = {
    "srun": """#!/bin/bash
for ((i = 0; i < SLURM_NTASKS; i++)); do
    SLURM_PROCID=$i SLURM_LOCALID=$i "$@" &
    started+=($!)
done
for each in "${started[@]}"; do wait "$each" || failed=1; done
exit ${failed:-0}
""",
    "scontrol": "#!/bin/bash\necho 127.0.0.1\n",
}


@functools.cache
def page_module(name):
    """A module of docs/, which fills pages."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_python(*arguments, **settings):
    """Run Python, which must succeed, and return what it prints."""
    settings |= {"capture_output": True, "text": True}
    command = [sys.executable, *map(str, arguments)]
    run = subprocess.run(command, check=False, timeout=540, **settings)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    return run.stdout


def blocks(page, language):
    """The blocks of code of a page of docs/."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"(?s)```{language}\n(.*?)```", text)


def job(page, program):
    """The only job on a page that calls a program."""
    jobs = [each for each in blocks(page, "sh") if each.startswith("#!/bin/bash")]
    (found,) = [each for each in jobs if program in each]
    return found


def environment(folder, **more):
    """The variables of a job, with the stand-ins, which are written into a folder."""
    binaries = folder / "bin"
    binaries.mkdir(exist_ok=True)
    for name, code in PROGRAMS.items():
        (binaries / name).write_text(code)
        (binaries / name).chmod(0o755)
    paths = [binaries, pathlib.Path(sys.executable).parent, os.environ["PATH"]]
    return {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "PATH": os.pathsep.join(map(str, paths)),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **more,
    }


def free_addresses(count):
    """Addresses on this machine where nobody listens."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def run_scripts(path, *calls, **more):
    """Run a script once for each list of arguments, at the same time.

    Args:
        path: The file of the script.
        *calls: Arguments of the calls.
        **more: Variables of the environment.

    Returns:
        What each call has printed last, which is JSON.
    """
    given = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(DOCS.parent / "tests"), *sys.path]),
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **more,
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [
        subprocess.Popen([sys.executable, path, *call], env=given, **pipes)
        for call in calls
    ]
    found = []
    try:
        for process in started:
            # Should one fail at its start, the others would wait for it.
            out, errors = process.communicate(timeout=540)
            assert process.returncode == 0, errors[-3000:]
            found.append(json.loads(out.splitlines()[-1]))
    finally:
        for process in started:
            process.kill()
            process.wait(timeout=60)
    return found
