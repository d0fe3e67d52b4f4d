"""Make .venv and put uv into it. Runs on any python3, so that an unfit one gets a clear message."""

import os
import subprocess
import sys


def main():
    if sys.version_info < (3, 11):
        found = ".".join(str(part) for part in sys.version_info[:3])
        sys.exit("Trax needs Python 3.11 or newer, this is %s. Name one: make PYTHON=python3.12 …" % found)
    try:
        import ensurepip  # noqa: F401
        import venv
    except ImportError:
        sys.exit(
            "This python3 cannot make virtual environments: its venv module is missing.\n"
            "On Debian and Ubuntu: apt-get install python3-venv. Elsewhere, name another one: make PYTHON=…"
        )
    venv.EnvBuilder(with_pip=True, clear=True, symlinks=os.name != "nt").create(".venv")
    python = os.path.join(".venv", "bin", "python")
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    command = [*pip, "--require-hashes", "--requirement", "requirements/uv.txt"]
    if subprocess.run(command).returncode == 0:
        return
    certificates = (
        sys.argv[1] if len(sys.argv) > 1 else None
    )  # of the system, which an older pip does not read
    if certificates:
        print("trying again with the certificates of the system: " + certificates, file=sys.stderr)
        if subprocess.run(command, env=dict(os.environ, PIP_CERT=certificates)).returncode == 0:
            return
    sys.exit("uv could not be installed into .venv (see above). Is the package index reachable?")


main()
