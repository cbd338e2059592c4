"""backend.py: makes the wheel and the sdist of figraph, using only Python's standard library.

A wheel has this folder's package, the binding that tools/binding.py generates from the headers, and
the libraries and programs that `make wheel` has built. Its tag follows from the system libraries
that those files need, which readelf lists. An sdist has this folder and the sources; pip can build
a wheel from it on a system with gcc and make. Invariant: this file lists everything that goes into
an archive, and the same files make the same archive.

    python/backend.py stage BUILT FOLDER     lay the package out under FOLDER, to be imported there
    python/backend.py wheel BUILT FOLDER     write a wheel into FOLDER
    python/backend.py sdist FOLDER           write an sdist into FOLDER
"""

import base64
import hashlib
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
# In an sdist the sources are a subfolder of this folder; in a checkout they are its parent.
SOURCE = os.path.join(HERE, "source")
if not os.path.isdir(SOURCE):
    SOURCE = os.path.dirname(HERE)
HEADERS = ("", "_archive", "_prompts", "_runner", "_parallel", "_ranks", "_rope", "_scores",
           "_tune", "_unstable", "_ffi")
# Libraries and programs, with the names that make gives them: first the name that `make built`
# makes for a wheel, then the name that `make` makes. tvm_ffi loads only names that end in .so.
BUILT = {
    "libfigraph.so.0": ("libfigraph.so.0", "libfigraph.so"),
    "libfigraph_ffi.so": ("libfigraph_ffi.so.0", "libfigraph_ffi.so"),
    "libfigraph_python.so": ("libfigraph_python.so.0", "libfigraph_python.so"),
    "figraph": ("figraph",),
    "figraph-launch": ("figraph-launch",),
}
# Two of the libraries need this one. In the package it has the name that they ask for.
KERNELS = ("libfigraph_kernels.so.0", "libfigraph_kernels.so")
SOURCES = ("LICENSE", "Makefile", "README.md", "include", "planner", "kernels", "graphs", "engine",
           "ffi", "python/steps.c", "tools")
OWN = ("pyproject.toml", "backend.py", "figraph")
# The system libraries that a manylinux wheel may need, because every system has them.
ANYWHERE = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"}
# The programs, and the functions by which servers find figraph among their plugins.
ENTRY_POINTS = """[console_scripts]
figraph = figraph.program:main
figraph-launch = figraph.program:launch
[vllm.general_plugins]
figraph = figraph.integrations.vllm:register
[sglang.srt.plugins]
figraph = figraph.integrations.sglang:register
"""
TIME = (2020, 1, 1, 0, 0, 0)  # the time of every file in an archive


def version():
    with open(os.path.join(SOURCE, "include/figraph.h"), encoding="utf-8") as header:
        number = int(re.search(r"#define FIG_VERSION (\d+)", header.read()).group(1))
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def write_binding():
    """Returns the text of figraph/abi.py."""
    headers = [os.path.join(SOURCE, f"include/figraph{name}.h") for name in HEADERS]
    command = [sys.executable, os.path.join(SOURCE, "tools/binding.py"), *headers]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def licenses():
    """Returns {name: path} of the licenses of the library and of the code bundled with it."""
    found = {"LICENSE": os.path.join(SOURCE, "LICENSE")}
    folder = os.path.join(SOURCE, ".deps/licenses")
    names = set(os.listdir(folder)) if os.path.isdir(folder) else set()
    for name in sorted(names - {"cmocka"}):  # only tests are linked with cmocka
        found[f"LICENSE.{name}"] = os.path.join(folder, name)
    return found


def package(built):
    """Returns the files of the package as {path: (bytes, is a program)}."""
    files = {"figraph/abi.py": (write_binding(), False)}
    for folder, folders, names in os.walk(os.path.join(HERE, "figraph")):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if name.endswith((".py", ".typed", ".json")):
                with open(path, "rb") as file:
                    files[os.path.relpath(path, HERE)] = (file.read(), False)
    for name, path in binaries(built).items():
        with open(path, "rb") as file:
            files[f"figraph/lib/{name}"] = (file.read(), True)
    return files


def binaries(built):
    """Returns the libraries and programs as {name in the package: path}."""
    found = {name: path_of(built, names) for name, names in BUILT.items()}
    kernels = path_of(built, KERNELS)
    found[re.search(r"SONAME.*\[(.*)\]", readelf("-d", kernels)).group(1)] = kernels
    return found


def path_of(built, names):
    paths = [os.path.join(built, own) for own in names]
    return next((path for path in paths if os.path.exists(path)), paths[0])


# ---- The tag -------------------------------------------------------------------------------------

def readelf(option, path):
    command = ["readelf", option, path]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def tag_of(built):
    """Returns the manylinux tag of the newest glibc that a file needs, or the linux tag if a file
    needs a library that not every system has."""
    machine = platform.machine()
    newest = (2, 17)
    files = binaries(built)
    for name, path in files.items():
        needed = re.findall(r"NEEDED.*\[(.*)\]", readelf("-d", path))
        others = {other for other in needed if not other.startswith("ld-linux")}
        others -= ANYWHERE | set(files)
        if others:
            print(f"this wheel runs only on systems like this one: {name} needs {min(others)}; "
                  "run tools/setup.sh --bundle first to make a wheel that needs only the C library")
            return f"linux_{machine}"
        versions = re.findall(r"GLIBC_(\d+)\.(\d+)", readelf("-V", path))
        newest = max([newest, *((int(major), int(minor)) for major, minor in versions)])
    return f"manylinux_{newest[0]}_{newest[1]}_{machine}"


# ---- Archives ------------------------------------------------------------------------------------

def metadata():
    with open(os.path.join(HERE, "figraph/__init__.py"), encoding="utf-8") as file:
        text = file.read()
    summary, _, tutorial = text.split('"""')[1].partition("\n\n")
    summary = summary.partition(": ")[2].rstrip(".")
    return (
        f"Metadata-Version: 2.1\nName: figraph\nVersion: {version()}\nSummary: {summary}\n"
        "License: Apache-2.0\nRequires-Python: >=3.9\n"
        "Description-Content-Type: text/plain\n"
        "Classifier: Operating System :: POSIX :: Linux\n"
        f"\n{tutorial}"
    ).encode()


def info_folder():
    return f"figraph-{version()}.dist-info"


def write_wheel(built, folder):
    tag = f"py3-none-{tag_of(built)}"
    info = info_folder()
    files = package(built)
    files[f"{info}/METADATA"] = (metadata(), False)
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: figraph\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
        False,
    )
    files[f"{info}/entry_points.txt"] = (ENTRY_POINTS.encode(), False)
    for name, path in licenses().items():
        with open(path, "rb") as file:
            files[f"{info}/licenses/{name}"] = (file.read(), False)
    record = io.StringIO()
    for path, (data, _) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.write(f"{path},sha256={digest},{len(data)}\n")
    record.write(f"{info}/RECORD,,\n")
    files[f"{info}/RECORD"] = (record.getvalue().encode(), False)
    name = f"figraph-{version()}-{tag}.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w", zipfile.ZIP_DEFLATED) as archive:
        for path, (data, is_program) in files.items():
            entry = zipfile.ZipInfo(path, TIME)
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return name


def stage(built, folder):
    """Writes the package as a wheel would install it."""
    for path, (data, is_program) in package(built).items():
        target = os.path.join(folder, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(data)
        os.chmod(target, 0o755 if is_program else 0o644)


def plain(entry):
    """Removes owners and times from a tar entry; returns None for files that are not sources."""
    if entry.name.endswith((".pyc", "__pycache__")):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry


def write_sdist(folder):
    root = f"figraph-{version()}"
    with tarfile.open(os.path.join(folder, f"{root}.tar.gz"), "w:gz", compresslevel=9) as archive:
        about = tarfile.TarInfo(f"{root}/PKG-INFO")
        about.size = len(metadata())
        archive.addfile(about, io.BytesIO(metadata()))
        for name in OWN:
            archive.add(os.path.join(HERE, name), f"{root}/{name}", filter=plain)
        for name in SOURCES:
            archive.add(os.path.join(SOURCE, name), f"{root}/source/{name}", filter=plain)
    return f"{root}.tar.gz"


# ---- Functions that pip calls --------------------------------------------------------------------

def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = os.path.join(metadata_directory, info_folder())
    os.mkdir(folder)
    with open(os.path.join(folder, "METADATA"), "wb") as file:
        file.write(metadata())
    return info_folder()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    command = ["make", "-C", SOURCE, f"-j{os.cpu_count()}", "built"]
    subprocess.run(command, check=True)
    return write_wheel(os.path.join(SOURCE, "build/release/wheel"), wheel_directory)


def build_sdist(sdist_directory, config_settings=None):
    return write_sdist(sdist_directory)


def main():
    words = sys.argv[1:]
    if len(words) == 3 and words[0] == "stage":
        shutil.rmtree(os.path.join(words[2], "figraph"), ignore_errors=True)
        stage(words[1], words[2])
    elif len(words) == 3 and words[0] == "wheel":
        print(write_wheel(words[1], words[2]))
    elif len(words) == 2 and words[0] == "sdist":
        print(write_sdist(words[1]))
    else:
        sys.exit("backend.py: stage BUILT FOLDER, wheel BUILT FOLDER or sdist FOLDER")


if __name__ == "__main__":
    main()
