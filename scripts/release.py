"""Write a whole release into a folder, and push nothing: ``python -m scripts.release REGISTRY URL DIRECTORY``.

REGISTRY  where the image and the chart will be, such as ``registry.example/gpu``
URL       where the archive ``kubectl-gas.tar.gz`` will be, for krew

The chart names the image by its digest.
"""

import hashlib
import json
import re
import sys
import tarfile
from pathlib import Path

from gas.daemon.command import own_version
from scripts import image, krew, sbom
from scripts.set_up import run

CHART = image.ROOT / "deploy/chart"


def write_image(file: Path) -> str:
    """Build the image into an OCI archive, and return its digest."""
    program = image.builder()
    if program == "docker":
        sys.exit("expected buildah or podman on the PATH, found docker only, which writes no archive with a digest")
    name = f"gas:{own_version()}"
    image.build(program, name)
    run(program, "push", name, f"oci-archive:{file}:{own_version()}")
    with tarfile.open(file) as tar:
        index = tar.extractfile("index.json") or sys.exit(f"{file}: expected index.json in it, as in an OCI archive")
        digest: str = json.load(index)["manifests"][0]["digest"]
    return digest


def chart_archive(registry: str, digest: str) -> bytes:
    """Return the chart as Helm packages it, with the image's registry and digest among its values."""
    files = {f"gas/{file.relative_to(CHART)}": file.read_bytes() for file in CHART.rglob("*") if file.is_file()}
    values = files["gas/values.yaml"].decode()
    for name, value in (("registry", registry), ("digest", digest)):
        values = re.sub(rf'(?m)^  {name}: ""$', f"  {name}: {value}", values, count=1)
    return krew.archive(
        {name: (content, 0o644) for name, content in (files | {"gas/values.yaml": values.encode()}).items()}
    )


def write(registry: str, url: str, directory: Path) -> list[str]:
    """Write the release, and return the commands that publish it."""
    directory.mkdir(parents=True, exist_ok=True)
    if old := sorted(each.name for each in directory.iterdir()):
        sys.exit(f"{directory}: expected an empty folder, found {', '.join(old[:3])}: name another, or empty it")
    version = own_version()
    image_file, chart_file = directory / f"gas-{version}-image.tar", directory / f"gas-{version}.tgz"
    digest = write_image(image_file)
    bill = sbom.bill_of_materials(image_file, digest, version)
    (directory / f"gas-{version}-image.cdx.json").write_text(bill, encoding="utf-8")
    chart_file.write_bytes(chart_archive(registry, digest))
    krew.write(url, directory)
    wheel = ("--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory))
    run(sys.executable, "-m", "pip", "wheel", "--quiet", *wheel, str(image.ROOT))
    sums = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in sorted(directory.iterdir())]
    (directory / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    return [
        f"skopeo copy --preserve-digests oci-archive:{image_file} docker://{registry}/gas:{version}   # {digest}",
        f"helm push {chart_file} oci://{registry}/charts",
        f"# copy {directory}/kubectl-gas.tar.gz to {url}, and the wheel and krew's gas.yaml to where people find them",
    ]


def main() -> None:
    """Write the release, and print what is left to do."""
    if len(sys.argv) != 4 or not sys.argv[2].startswith("https://"):
        sys.exit("python -m scripts.release: expected a registry, a URL that begins with https://, and a folder")
    registry, url, directory = sys.argv[1:]
    publish = write(registry, url, Path(directory))
    sys.stdout.write("\n".join(["Nothing is published yet. These commands publish it:", *publish, ""]))


if __name__ == "__main__":
    main()
