"""wheel_contents.py: checks that a wheel is complete and small, and needs only the libraries that
its platform tag allows.

    tests/python/wheel_contents.py WHEEL
"""

import base64
import configparser
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile

path = sys.argv[1]
name = os.path.basename(path)
assert os.path.getsize(path) < 20e6, os.path.getsize(path)
with zipfile.ZipFile(path) as archive:
    files = {entry.filename: entry for entry in archive.infolist()}
    info = next(f for f in files if f.endswith(".dist-info/RECORD")).rpartition("/")[0]
    version = re.search(r"\nVersion: (\S+)", archive.read(f"{info}/METADATA").decode()).group(1)
    tag = re.search(r"Tag: (\S+)", archive.read(f"{info}/WHEEL").decode()).group(1)
    assert name == f"figraph-{version}-{tag}.whl", (name, version, tag)
    # RECORD lists exactly the files of the wheel, each with its digest.
    told = dict(line.split(",", 1) for line in
                archive.read(f"{info}/RECORD").decode().splitlines())
    assert set(told) == set(files), set(told) ^ set(files)
    for file, rest in told.items():
        if file.endswith("/RECORD"):
            continue
        data = archive.read(file)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert rest == f"sha256={digest},{len(data)}", file
    for file in ("figraph/__init__.py", "figraph/abi.py", "figraph/py.typed",
                 "figraph/torch/__init__.py", "figraph/integrations/__init__.py",
                 "figraph/integrations/transformers/__init__.py",
                 "figraph/integrations/transformers/flash/build/torch-universal/__init__.py",
                 "figraph/integrations/transformers/flash/build/torch-universal/metadata.json",
                 "figraph/integrations/vllm/attention_backend.py",
                 "figraph/integrations/vllm/latent_backend.py",
                 "figraph/integrations/sglang/decode_backend.py", f"{info}/licenses/LICENSE"):
        assert file in files, file
    # Each entry point names a function that exists in a file of the wheel.
    points = configparser.ConfigParser()
    points.read_string(archive.read(f"{info}/entry_points.txt").decode())
    assert set(points) >= {"console_scripts", "vllm.general_plugins", "sglang.srt.plugins"}
    for section in points.sections():
        for module, _, function in (one.partition(":") for one in points[section].values()):
            place = module.replace(".", "/")
            place = next(f for f in (f"{place}.py", f"{place}/__init__.py") if f in files)
            assert f"\ndef {function}(" in archive.read(place).decode(), (place, function)
    programs = [file for file in files if file.startswith("figraph/lib/")]
    assert len(programs) == 6, programs
    kernels = {}  # {library: the file that contains its kernels}
    with tempfile.TemporaryDirectory() as folder:
        for file in programs:
            assert files[file].external_attr >> 16 & 0o111, f"{file} is no program"
            binary = archive.extract(file, folder)
            read = subprocess.run(["readelf", "-d", "-V", binary], check=True, text=True,
                                  stdout=subprocess.PIPE).stdout
            for needed in re.findall(r"NEEDED.*\[(libfigraph_kernels.*)\]", read):
                assert f"figraph/lib/{needed}" in files, (file, needed)
                kernels[os.path.basename(file)] = needed
            for path in re.findall(r"(?:RPATH|RUNPATH).*\[(.*)\]", read):
                assert path == "$ORIGIN", (file, path)
            limits = re.search(r"manylinux_(\d+)_(\d+)_", tag)
            if limits is None:
                continue
            for needed in re.findall(r"NEEDED.*\[(.*)\]", read):
                assert re.fullmatch(r"lib(c|m|dl|rt|pthread)\.so\.\d|ld-linux.*|libfigraph\.so\.0|"
                                    r"libfigraph_kernels-[0-9a-f]{8}\.so", needed), (file, needed)
            for glibc in re.findall(r"GLIBC_(\d+)\.(\d+)", read):
                assert tuple(map(int, glibc)) <= tuple(map(int, limits.groups())), (file, glibc)
# Kernels are the largest part of a wheel, so all libraries share one file of them.
assert set(kernels) == {"libfigraph.so.0", "libfigraph_ffi.so"}, kernels
large = [file for file in programs if files[file].file_size > 4e6]
assert [os.path.basename(file) for file in large] in ([], [kernels["libfigraph.so.0"]]), large
