"""binding.py: reads the public headers and writes a ctypes module of their declarations.

It parses only the C that these headers use: enumerators, structs, opaque types, callbacks and
functions. It refuses any other statement, and any field that is not of fixed width. So a binding in
any language is a plain translation of the headers.

    tools/binding.py include/figraph.h include/figraph_unstable.h > figraph.py
"""

import argparse
import re
import sys

SCALARS = {
    "uint16_t": "c_uint16",
    "int32_t": "c_int32",
    "uint32_t": "c_uint32",
    "int64_t": "c_int64",
    "uint64_t": "c_uint64",
    "float": "c_float",
    "double": "c_double",
}
ARGUMENTS = {"size_t": "c_size_t"}  # types that only arguments may have, besides SCALARS
POINTERS = {"char": "c_char_p", "void": "c_void_p"}

PREAMBLE = '''"""Generated from the headers of libfigraph; load() opens the library."""

import ctypes
from ctypes import *  # noqa: F403

'''
LOADER = '''

def options(type, **fields):
    """Makes a struct and sets its size, as FIG_OPTIONS does in C."""
    return type(size=ctypes.sizeof(type), **fields)


def load(path="libfigraph.so.0", is_ffi=False):
    """Opens the library and gives each function the types of its arguments and of its result.
    is_ffi: path is libfigraph_ffi.so, which has the functions of figraph_ffi.h only."""
    library = ctypes.CDLL(path)
    for name, result, arguments in FUNCTIONS:
        if name.startswith("fig_ffi_") != is_ffi:
            continue
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library
'''


class Refused(Exception):
    """A header declares something that a binding cannot express."""


class Headers:
    """The declarations of the headers, in their order."""

    def __init__(self):
        self.constants = {}  # name: value
        self.aliases = {}  # "fig_status": "uint32_t"
        self.opaque = []  # structs without a declaration so far
        self.structs = {}  # name: [(field, type, array length or None)]
        self.callbacks = {}  # name: (result, [argument])
        self.functions = {}  # name: (result, [argument])

    def value(self, text):
        return self.constants[text] if text in self.constants else int(text, 0)

    def base(self, name, where, known):
        """Returns the ctypes name of a type that is not a pointer."""
        name = self.aliases.get(name, name)
        if name in known:
            return known[name]
        if name in self.structs or name in self.callbacks:
            return name
        raise Refused("%s: %s is not of fixed width" % (where, name))

    def typed(self, name, stars, where, known):
        """Returns the ctypes expression of a type behind `stars` pointers."""
        if stars == 0:
            return self.base(name, where, known)
        if name in POINTERS:
            inner, stars = POINTERS[name], stars - 1
        elif name in self.opaque and name not in self.structs:
            inner = name
        else:
            inner = self.base(name, where, known)
        return "POINTER(" * stars + inner + ")" * stars

    def field(self, struct, text):
        """Yields the fields of one declaration."""
        for name in re.findall(r"\bstruct (\w+)", text):
            self.read_opaque(name)
        words = re.sub(r"\b(const|struct)\b", " ", text)
        match = re.fullmatch(r"\s*(\w+)(.*)", words, re.S)
        for declared in match.group(2).split(","):
            part = re.fullmatch(r"([\s*]*)(\w+)\s*(?:\[\s*(\w+)\s*\])?\s*", declared)
            if part is None:
                raise Refused("%s: cannot read \"%s\"" % (struct, text.strip()))
            stars, name, length = part.group(1).count("*"), part.group(2), part.group(3)
            where = struct + "." + name
            is_text = match.group(1) == "char" and stars == 0 and length is not None
            kind = "c_char" if is_text else self.typed(match.group(1), stars, where, SCALARS)
            yield name, kind, None if length is None else self.value(length)

    def argument(self, function, text):
        match = re.fullmatch(r"\s*(\w+)([\s*]*)\w*\s*", re.sub(r"\b(const|struct)\b", " ", text))
        if match is None:
            raise Refused("%s: cannot read \"%s\"" % (function, text.strip()))
        known = {**SCALARS, **ARGUMENTS}
        return self.typed(match.group(1), match.group(2).count("*"), function, known)

    def signature(self, name, result, arguments):
        is_none = re.fullmatch(r"\s*void\s*", result)
        texts = [] if re.fullmatch(r"\s*(void)?\s*", arguments) else arguments.split(",")
        return (
            "None" if is_none else self.argument(name, result + " result"),
            [self.argument(name, text) for text in texts],
        )

    def enumerate(self, text):
        following = 0
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, _, value = (word.strip() for word in part.partition("="))
            following = self.value(value) if value else following
            self.constants[name] = following
            following += 1

    def read_statement(self, text):
        patterns = (
            (r"enum \{(.*)\}", self.enumerate),
            (r"typedef struct (\w+) \{(.*)\} \1", self.read_struct),
            (r"typedef struct (\w+) \1", self.read_opaque),
            (r"typedef (\w+) \(\*(\w+)\)\((.*)\)", self.read_callback),
            (r"typedef (\w+) (\w+)", self.read_alias),
            (r"FIG_API ((?:const )?\w+[ *]+)(\w+)\((.*)\)", self.read_function),
        )
        for pattern, read in patterns:
            match = re.fullmatch(pattern, text)
            if match is not None:
                read(*match.groups())
                return
        raise Refused("cannot read \"%s\"" % text)

    def read_struct(self, name, body):
        fields = []
        for text in body.split(";"):
            if text.strip():
                fields.extend(self.field(name, text))
        self.structs[name] = fields

    def read_opaque(self, name):
        if name not in self.opaque:
            self.opaque.append(name)

    def read_callback(self, result, name, arguments):
        # Text that C hands to Python may lack the NUL that c_char_p looks for.
        result, arguments = self.signature(name, result, arguments)
        arguments = [kind.replace("c_char_p", "POINTER(c_char)") for kind in arguments]
        self.callbacks[name] = (result, arguments)

    def read_alias(self, known, name):
        if known not in SCALARS:
            raise Refused("%s: %s is not of fixed width" % (name, known))
        self.aliases[name] = known

    def read_function(self, result, name, arguments):
        self.functions[name] = self.signature(name, result, arguments)

    def read(self, text):
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        text = text.replace("\\\n", " ")
        text = re.sub(r"#ifdef __cplusplus.*?#(?:else|endif)\b", " ", text, flags=re.S)
        for name, value in re.findall(r"^#define (FIG_\w+) +\(?(-?\d+)\)?\s*$", text, re.M):
            self.constants[name] = int(value)
        text = " ".join(re.sub(r"^\s*#.*$", "", text, flags=re.M).split())
        # A statement ends at a semicolon outside all braces.
        for statement in re.findall(r"\s*((?:[^;{]|\{[^{}]*\})+);", text):
            self.read_statement(statement.strip())


def parse(paths):
    """Reads the declarations of the headers at these paths."""
    headers = Headers()
    for path in paths:
        with open(path, encoding="utf-8") as file:
            headers.read(file.read())
    if not headers.functions:
        raise Refused("%s: no function is declared" % ", ".join(paths))
    return headers


def write_module(headers):
    """Returns the text of a ctypes module."""
    lines = ["%s = %d" % pair for pair in headers.constants.items()]
    for name in dict.fromkeys(headers.opaque + list(headers.structs)):
        lines += ["", "", "class %s(ctypes.Structure):" % name, "    pass"]
    lines += ["", ""]
    for name, known in headers.aliases.items():
        lines.append("%s = %s" % (name, SCALARS[known]))
    for name, (result, arguments) in headers.callbacks.items():
        lines.append("%s = CFUNCTYPE(%s)" % (name, ", ".join([result] + arguments)))
    for name, fields in headers.structs.items():
        lines.append("%s._fields_ = [" % name)
        for field, kind, length in fields:
            lines.append('    ("%s", %s),' % (field, kind if length is None else
                                              "%s * %d" % (kind, length)))
        lines.append("]")
    lines += ["", "FUNCTIONS = ["]
    for name, (result, arguments) in headers.functions.items():
        lines.append('    ("%s", %s, [%s]),' % (name, result, ", ".join(arguments)))
    lines.append("]")
    return PREAMBLE + "\n".join(lines) + "\n" + LOADER


def main():
    words = argparse.ArgumentParser(
        prog="binding.py",
        description="Writes a ctypes module of the declarations in libfigraph's headers.",
    )
    words.add_argument(
        "headers",
        metavar="HEADER",
        nargs="+",
        help="include/figraph.h first, then the headers that include it",
    )
    try:
        sys.stdout.write(write_module(parse(words.parse_args().headers)))
    except (Refused, OSError, UnicodeDecodeError) as refused:
        sys.exit("binding.py: %s" % refused)


if __name__ == "__main__":
    main()
