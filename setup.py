"""Builds the Python module with CMake; the rest stands in pyproject.toml. The C++ libraries that scripts/setup installs
must be there."""

import re
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

root = Path(__file__).resolve().parent


class CMakeBuild(build_ext):
    def build_extension(self, ext):
        build = Path(self.build_temp).resolve()
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        subprocess.run(
            ["cmake", "-S", root, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DREDLITE_TESTS=OFF",
             "-DREDLITE_PYTHON=ON", f"-DPython3_EXECUTABLE={sys.executable}"],
            check=True)
        subprocess.run(["cmake", "--build", build, "--target", "redlite_python"], check=True)
        (built,) = (build / "python" / "redlite").glob("_redlite*.so")
        target.parent.mkdir(parents=True, exist_ok=True)
        self.copy_file(str(built), str(target))


version = re.search(r"project\(redlite VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text()).group(1)
setup(version=version, ext_modules=[Extension("redlite._redlite", sources=[])], cmdclass={"build_ext": CMakeBuild})
