"""Run scripts, and the jobs of pages as SLURM would, on this machine alone."""

import contextlib
import functools
import importlib.util
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

# Seconds for a process, five times those of the longest, and between two looks at it.
LIMIT, PAUSE = 300, 5
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


@contextlib.contextmanager
def started(*command, **settings):
    """A process, which ends with the block, and with it those that it has started."""
    if os.name == "posix":
        settings["start_new_session"] = True  # Its number is that of its group.
    with subprocess.Popen([*map(str, command)], text=True, **settings) as process:
        try:
            yield process
        finally:
            # Also what has lost its parent, and may hold the pipes.
            with contextlib.suppress(ProcessLookupError):
                if os.name == "posix":
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()


def wait(process, code=0):
    """Wait for a process that ends with a code, and return what it has printed.

    Of a second, that part counts which a busy machine gives to each process.
    """
    left = LIMIT
    while True:
        try:
            printed, errors = process.communicate(timeout=PAUSE)
        except subprocess.TimeoutExpired as error:
            left -= PAUSE / crowding()
            if left <= 0:
                said = f"{error.stdout}\n{error.stderr}"
                text = f"{process.args} has not ended after {LIMIT} seconds: {said}"
                raise TimeoutError(text) from None
        else:
            shown = [each[-3000:] for each in (printed, errors) if each]
            assert process.returncode == code, "\n".join(shown)
            return printed


def crowding():
    """The number of processes that want each core of this machine: one to ten."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0
    return min(max(1, load / os.cpu_count()), 10)


def run_together(*calls, code=0):
    """Run commands, each with its settings, at the same time; return what each prints.

    They must end with this code.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(started(*command, **(pipes | settings)))
            for command, settings in calls
        ]
        # Should one fail at its start, the others would wait for it.
        return [wait(each, code) for each in processes]


def run(*command, code=0, **settings):
    """Run a command, which must end with this code, and return what it prints."""
    (printed,) = run_together((command, settings), code=code)
    return printed


def run_python(*arguments, **settings):
    """Run Python, which must succeed, and return what it prints."""
    return run(sys.executable, *arguments, **settings)


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
    commands = [((sys.executable, path, *call), {"env": given}) for call in calls]
    return [json.loads(each.splitlines()[-1]) for each in run_together(*commands)]
