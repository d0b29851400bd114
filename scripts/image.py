"""Build the image with buildah, podman or docker: ``python3 -m scripts.image NAME [push | load | FILE]``.

push   to the registry in NAME
load   into the containerd of this machine, which is then a node that needs no registry
FILE   an archive that ``ctr images import`` reads on other nodes
"""

import shutil
import sys
import tempfile
from pathlib import Path

from scripts.set_up import run

ROOT = Path(__file__).resolve().parents[1]
BUILDERS = ("buildah", "podman", "docker")


def builder() -> str:
    """Return the first program that can build images. Ends with a sentence if there is none."""
    return next(filter(shutil.which, BUILDERS), None) or sys.exit(
        f"expected {', '.join(BUILDERS[:-1])} or {BUILDERS[-1]} on the PATH, found none: install one of them"
    )


def build(program: str, name: str) -> None:
    as_docker = () if program == "docker" else ("--format", "docker")
    run(program, "build", *as_docker, "--file", str(ROOT / "Containerfile"), "--tag", name, str(ROOT))


def save(program: str, name: str, file: Path) -> None:
    """Write the image with its name into an archive in the form of ``docker save``."""
    if program == "docker":
        run(program, "save", "--output", str(file), name)
    else:
        run(program, "push", name, f"docker-archive:{file}:{name}")


def main() -> None:
    """Build, then push, load or save."""
    words = sys.argv[1:]
    if not 1 <= len(words) <= 2:
        sys.exit("python3 -m scripts.image: expected the name of the image, and then push, load, a file or nothing")
    name, target = words[0], "".join(words[1:])
    program = builder()
    build(program, name)
    if target == "push":
        run(program, "push", name)
    elif target == "load":
        with tempfile.TemporaryDirectory() as directory:
            archive = Path(directory) / "gas.tar"
            save(program, name, archive)
            run("ctr", "--namespace=k8s.io", "images", "import", str(archive))
    elif target:
        save(program, name, Path(target))


if __name__ == "__main__":
    main()
