"""Builds the Python module with CMake; the rest stands in pyproject.toml. The C++ libraries that scripts/setup installs
must be there."""

import re
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

root = Path(__file__).resolve().parent


def pybind11_folder():
    """Tells CMake of the pybind11 that pip brought; without one it finds Debian's pybind11-dev."""
    try:
        import pybind11
    except ImportError:
        return []
    return [f"-Dpybind11_DIR={pybind11.get_cmake_dir()}"]


class CMakeBuild(build_ext):
    def build_extension(self, ext):
        build = Path(self.build_temp).resolve()
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        subprocess.run(
            ["cmake", "-S", root, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DREDLITE_TESTS=OFF",
             "-DREDLITE_PYTHON=ON", f"-DPython3_EXECUTABLE={sys.executable}", *pybind11_folder()],
            check=True)
        subprocess.run(["cmake", "--build", build, "--target", "redlite_python"], check=True)
        (built,) = (build / "python" / "redlite").glob("_redlite*.so")
        target.parent.mkdir(parents=True, exist_ok=True)
        self.copy_file(str(built), str(target))


version = re.search(r"project\(redlite VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text()).group(1)
setup(version=version, ext_modules=[Extension("redlite._redlite", sources=[])], cmdclass={"build_ext": CMakeBuild})
