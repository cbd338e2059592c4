"""wheel_contents.py: a wheel is whole, small, and needs nothing that its name does not say.

    tests/python/wheel_contents.py WHEEL
"""

import base64
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile

path = sys.argv[1]
name = os.path.basename(path)
assert os.path.getsize(path) < 40e6, os.path.getsize(path)
with zipfile.ZipFile(path) as archive:
    files = {entry.filename: entry for entry in archive.infolist()}
    info = next(f for f in files if f.endswith(".dist-info/RECORD")).rpartition("/")[0]
    version = re.search(r"\nVersion: (\S+)", archive.read(f"{info}/METADATA").decode()).group(1)
    tag = re.search(r"Tag: (\S+)", archive.read(f"{info}/WHEEL").decode()).group(1)
    assert name == f"figraph-{version}-{tag}.whl", (name, version, tag)
    # Every file is in RECORD with its digest, and RECORD has no other.
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
                 "figraph/torch/__init__.py", f"{info}/licenses/LICENSE"):
        assert file in files, file
    programs = [file for file in files if file.startswith("figraph/lib/")]
    assert len(programs) == 5, programs
    with tempfile.TemporaryDirectory() as folder:
        for file in programs:
            assert files[file].external_attr >> 16 & 0o111, f"{file} is no program"
            binary = archive.extract(file, folder)
            read = subprocess.run(["readelf", "-d", "-V", binary], check=True, text=True,
                                  stdout=subprocess.PIPE).stdout
            for path in re.findall(r"(?:RPATH|RUNPATH).*\[(.*)\]", read):
                assert path == "$ORIGIN", (file, path)
            limits = re.search(r"manylinux_(\d+)_(\d+)_", tag)
            if limits is None:
                continue
            for needed in re.findall(r"NEEDED.*\[(.*)\]", read):
                assert re.fullmatch(r"lib(c|m|dl|rt|pthread)\.so\.\d|ld-linux.*|libfigraph\.so\.0",
                                    needed), (file, needed)
            for glibc in re.findall(r"GLIBC_(\d+)\.(\d+)", read):
                assert tuple(map(int, glibc)) <= tuple(map(int, limits.groups())), (file, glibc)
