"""server_signatures.py: checks our classes for vLLM and SGLang against the signatures of these
servers.

    tests/python/servers/server_signatures.py                # needs no server, torch or figraph
    SERVER_WHEELS=FOLDER ...                                 # also: do the wheels say the same?
    tests/python/servers/server_signatures.py record WHEEL ... # write server_signatures.json anew

For some versions of each server, server_signatures.json describes the modules that we build on: the
parameters of methods and functions, the attributes of classes, and the arguments with which the
server calls us. The script reads a few Python files of a wheel as text, and imports nothing of a
server. Instead of a wheel, it accepts a folder into which one was unpacked.
"""

import ast
import json
import os
import re
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../../..")
RECORDED = os.path.join(HERE, "server_signatures.json")
sys.path[:0] = [os.path.join(HERE, "../../support"), HERE]
from sentences import refused, run  # noqa: E402
from server_modules import BEFORE, CALLS, OURS, SERVERS, SINCE, STUBS  # noqa: E402


# ---- Reading Python text -------------------------------------------------------------------------


def parameters(function):
    """Returns the parameters as a list of strings: "name", "name=" with a default, "*",
    "**name"."""
    given = function.args
    names = [*given.posonlyargs, *given.args]
    required = len(names) - len(given.defaults)
    made = [one.arg + ("=" if n >= required else "") for n, one in enumerate(names)]
    if given.vararg or given.kwonlyargs:
        made.append("*" + (given.vararg.arg if given.vararg else ""))
    made += [one.arg + ("=" if default is not None else "")
             for one, default in zip(given.kwonlyargs, given.kw_defaults)]
    return made + ([f"**{given.kwarg.arg}"] if given.kwarg else [])


def arguments(call):
    """Returns the arguments of a call as a list of strings."""
    made = ["*" if isinstance(one, ast.Starred) else
            one.id if isinstance(one, ast.Name) else "_" for one in call.args]
    return made + [f"{one.arg}=" if one.arg else "**" for one in call.keywords]


def is_public(name):
    return not name.startswith("_") or name == "__init__"


def attributes(node):
    """Returns the attributes of a class: those assigned in its body, and those that its methods
    assign."""
    found = {name for one in node.body for name in targets(one)}
    for one in ast.walk(node):
        if isinstance(one, (ast.Assign, ast.AnnAssign)):
            places = one.targets if isinstance(one, ast.Assign) else [one.target]
            for place in places:
                for part in ast.walk(place):
                    if (isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name)
                            and part.value.id == "self"):
                        found.add(part.attr)
    return sorted(found)


def targets(node):
    """Returns the names that a statement of a class body or module assigns."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.Assign):
        return [one.id for one in node.targets if isinstance(one, ast.Name)]
    return []


def described(tree, names):
    """Returns a description of these names of a module."""
    made = {}
    # vLLM declares its environment variables under `if TYPE_CHECKING`.
    for node in [*tree.body, *(part for one in tree.body if isinstance(one, ast.If)
                               for part in one.body)]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name in names:
            made[node.name] = ", ".join(parameters(node))
        elif isinstance(node, ast.ClassDef) and node.name in names:
            methods = {one.name: ", ".join(parameters(one)) for one in node.body
                       if isinstance(one, ast.FunctionDef) and is_public(one.name)}
            made[node.name] = {
                "bases": [ast.unparse(base).partition("[")[0] for base in node.bases],
                "methods": dict(sorted(methods.items())),
                "attributes": " ".join(attributes(node)),
            }
        for name in targets(node):
            if name in names:
                made[name] = ast.unparse(node.value) if node.value else ""
    missing = set(names) - set(made)
    if missing:
        raise LookupError(f"no {', '.join(sorted(missing))}")
    return made


def calls(tree, expressions):
    """Returns the arguments of all calls of these expressions."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in expressions:
            said = ", ".join(arguments(node))
            found.setdefault(ast.unparse(node.func), set()).add(said)
    return {name: sorted(said) for name, said in sorted(found.items())}


class Wheel:
    """Reads a server's Python files from a wheel or a folder."""

    def __init__(self, path):
        name = os.path.basename(os.path.normpath(path))
        self.server, self.version = re.match(r"(vllm|sglang)-([0-9][^-]*)", name).groups()
        self.folder = path if os.path.isdir(path) else None
        self.archive = None if self.folder else zipfile.ZipFile(path)

    def tree(self, path):
        if self.folder:
            with open(os.path.join(self.folder, path), "rb") as file:
                return ast.parse(file.read())
        return ast.parse(self.archive.read(path))

    def description(self):
        modules, called = {}, {}
        for path, names in SERVERS[self.server].items():
            try:
                modules[path] = described(self.tree(path), names)
            except LookupError as error:
                raise LookupError(f"{self.server} {self.version}: {path}: {error}") from None
        for path, expressions in CALLS[self.server].items():
            called |= calls(self.tree(path), expressions)
        return {"modules": modules, "calls": called}


def recorded():
    with open(RECORDED, encoding="utf-8") as file:
        return json.load(file)


def wheels_in(place):
    """Returns the servers' wheels in a folder, packed or unpacked; or `place` itself if it is
    one."""
    if not os.path.isdir(place) or re.match(r"(vllm|sglang)-\d", os.path.basename(place)):
        return [Wheel(place)]
    found = {}
    for name in sorted(os.listdir(place)):
        path = os.path.join(place, name)
        if re.match(r"(vllm|sglang)-\d", name) and (name.endswith(".whl") or os.path.isdir(path)):
            wheel = Wheel(path)
            found[wheel.server, wheel.version] = wheel
    return list(found.values())


# ---- Our classes against a description -----------------------------------------------------------


class Described:
    """The description of one version of a server."""

    def __init__(self, server, version, description):
        self.name = f"{server} {version}"
        self.calls = description["calls"]
        self.held = {}
        self.modules = {}
        for path, names in description["modules"].items():
            module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            self.modules[module] = names
            self.held |= names

    def is_before(self, version):
        mine = self.name.partition(" ")[2]
        return [int(n) for n in re.findall(r"\d+", mine)[:3]] < [int(n) for n in version.split(".")]

    def bases(self, name):
        """Yields a class and all its bases, as far as they are described."""
        if isinstance(self.held.get(name), dict):
            yield self.held[name]
            for base in self.held[name]["bases"]:
                yield from self.bases(base)

    def method(self, name, method):
        for base in self.bases(name):
            if method in base["methods"]:
                return [one for one in base["methods"][method].split(", ") if one]
        return None

    def has(self, name, attribute):
        return any(attribute in base["methods"] or attribute in base["attributes"].split()
                   for base in self.bases(name))


def bare(parameter):
    return parameter.strip("*=")


def misfit(own, theirs):
    """Returns the reason why a method with parameters `own` cannot be called like one with
    `theirs`, or None. Both lists are without self."""
    named = [one for one in own if not one.startswith("*")]
    rest = any(one.startswith("*") and one != "*" for one in own)
    for n, one in enumerate(one for one in theirs if not one.startswith("*")):
        if n >= len(named):
            if not rest:
                return f"it lacks {bare(one)}"
            continue
        if bare(named[n]) != bare(one):
            return f"its parameter {n + 1} is {bare(named[n])}, it must be {bare(one)}"
        if one.endswith("=") and not named[n].endswith("="):
            return f"{bare(one)} has no default, it must have one"
    for extra in named[len([one for one in theirs if not one.startswith("*")]):]:
        if not extra.endswith("="):
            return f"it wants {extra}, which is not given"
    return None


class Module:
    """One of our Python files, or a file of stubs."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.tree = ast.parse(file.read())
        self.classes = [node for node in self.tree.body if isinstance(node, ast.ClassDef)]

    def imports(self, server):
        """Yields (module, name) for each name that is imported from the server when the module
        runs."""
        unseen = {id(one) for node in ast.walk(self.tree)
                  if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
                  for one in node.body}
        for node in ast.walk(self.tree):
            if id(node) in unseen:
                continue
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                if (node.module or "").partition(".")[0] == server:
                    for one in node.names:
                        yield node.module, one.name


    def aliases(self, server):
        """Returns {alias: module} for the server's modules that are imported as a whole."""
        return {one.asname: one.name for node in ast.walk(self.tree)
                if isinstance(node, ast.Import) for one in node.names
                if one.asname and one.name.partition(".")[0] == server}


def methods_of(node):
    return [one for one in node.body if isinstance(one, ast.FunctionDef)]


def wrong_imports(module, server, version):
    for path, name in module.imports(server):
        if name not in version.modules.get(path, {}):
            yield f"{path} has no {name}"
    aliases = module.aliases(server)
    for one in ast.walk(module.tree):
        if (isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)
                and one.value.id in aliases):
            path = aliases[one.value.id]
            if one.attr not in version.modules.get(path, {}):
                yield f"{path} has no {one.attr}"


def wrong_overrides(node, base, version):
    """Yields methods and attributes of our class that no base has, or that a base declares
    differently."""
    for one in methods_of(node):
        theirs = version.method(base, one.name)
        if theirs is None:
            name = f"{node.name}.{one.name}"
            is_absent = (name in SINCE and version.is_before(SINCE[name])
                         or name in BEFORE and not version.is_before(BEFORE[name]))
            if is_public(one.name) and not is_absent:
                yield f"{node.name}.{one.name}: {base} has no such method"
            continue
        skipped = 0 if any("staticmethod" in ast.unparse(d) for d in one.decorator_list) else 1
        why = misfit(parameters(one)[skipped:], theirs[skipped:])
        if why:
            yield f"{node.name}.{one.name}: {why}"
    for name in (name for one in node.body for name in targets(one)):
        if not version.has(base, name):
            yield f"{node.name}.{name}: {base} has no such attribute"


def wrong_reads(node, base, version):
    """Yields attributes that our class reads although no class sets them."""
    own = set(attributes(node)) | {one.name for one in methods_of(node)}
    for method in methods_of(node):
        kinds = {"self": base} | {name: kind for name, kind in annotated(method)
                                  if isinstance(version.held.get(kind), dict)}
        for one in ast.walk(method):
            if not (isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)
                    and isinstance(one.ctx, ast.Load) and one.value.id in kinds):
                continue
            kind = kinds[one.value.id]
            if one.value.id == "self" and one.attr in own:
                continue
            if not version.has(kind, one.attr):
                yield f"{node.name}.{method.name} reads {one.attr}, which {kind} has not"


def annotated(method):
    """Yields (variable, class name) for each annotated variable."""
    given = method.args
    for one in (*given.args, *given.kwonlyargs):
        if one.annotation is not None:
            yield one.arg, re.sub(r"Optional\[(.*)\]", r"\1", ast.unparse(one.annotation))
    for one in ast.walk(method):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            yield one.target.id, re.sub(r"Optional\[(.*)\]", r"\1", ast.unparse(one.annotation))


def wrong_calls_up(node, base, version):
    """Yields calls of super().method(...) whose arguments do not follow the order of the base's
    parameters."""
    for one in ast.walk(node):
        if not (isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)
                and ast.unparse(one.func.value) == "super()"):
            continue
        theirs = version.method(base, one.func.attr)
        if theirs is None:
            yield f"{node.name} calls super().{one.func.attr}(), which {base} has not"
            continue
        theirs = [bare(parameter) for parameter in theirs[1:]]
        for n, said in enumerate(arguments(one)):
            if said.startswith("*"):
                break
            known = said[:-1] in theirs if said.endswith("=") else n < len(theirs) and \
                said in (theirs[n], "_")
            if not known:
                yield f"{node.name}: super().{one.func.attr}({said}) is not {', '.join(theirs)}"
                break


def wrong_calls_down(modules, server, version):
    """Yields calls by the server whose arguments our method could not accept."""
    methods = {f"{node.name}.{one.name}": parameters(one)[1:] for module in modules
               for node in module.classes for one in methods_of(node)}
    for expressions in CALLS[server].values():
        for expression, name in expressions.items():
            if expression not in version.calls:
                yield f"nobody calls {expression}"
            for said in version.calls.get(expression, []):
                given = [one for one in said.split(", ") if one]
                own = [bare(one) for one in methods[name]]
                if len([one for one in given if not one.endswith(("=", "*"))]) > len(own):
                    yield f"{name}: it is called with {said}"
                for one in given:
                    if one.endswith("=") and one[:-1] not in own and \
                            not any(own_one.startswith("**") for own_one in methods[name]):
                        yield f"{name}: it is called with {one}"


def faults(server, version):
    """Yields everything in our modules that does not fit a version."""
    folder = os.path.join(ROOT, "python/figraph/integrations")
    modules = [Module(os.path.join(folder, name)) for name in OURS[server]]
    for module in modules:
        yield from wrong_imports(module, server, version)
        for node in module.classes:
            for base in (ast.unparse(one) for one in node.bases):
                if base in version.held:
                    yield from wrong_overrides(node, base, version)
                    yield from wrong_reads(node, base, version)
                    yield from wrong_calls_up(node, base, version)
    yield from wrong_calls_down(modules, server, version)


def wrong_stubs(server, version):
    """Yields the methods of a server's stubs that differ from a version's, or that it lacks."""
    for node in (one for name in STUBS[server] for one in Module(os.path.join(HERE, name)).classes):
        if not isinstance(version.held.get(node.name), dict):
            continue
        for one in methods_of(node):
            theirs = version.method(node.name, one.name)
            own = parameters(one)
            # A stub's __init__ may take fewer parameters than the real one.
            if theirs is not None and own != (theirs[: len(own)] if one.name == "__init__"
                                              else theirs):
                yield f"{node.name}.{one.name}({', '.join(own)}) is {theirs}"
            if theirs is None and is_public(one.name):
                yield f"{node.name}.{one.name}: there is none"


def versions(server=None):
    for name, found in recorded().items():
        if server in (None, name):
            for version, description in found.items():
                yield name, Described(name, version, description)


# ---- Cases ---------------------------------------------------------------------------------------


def our_classes_fit_each_recorded_version():
    found = [f"{version.name}: {fault}" for server, version in versions()
             for fault in faults(server, version)]
    assert not found, "\n".join(found)


def each_server_is_recorded_in_its_versions():
    held = {server: len(found) for server, found in recorded().items()}
    assert set(held) == set(SERVERS) and held["vllm"] >= 3, held


def stubs_have_the_signatures_of_the_newest_version():
    for server in SERVERS:
        newest = list(versions(server))[-1][1]
        found = list(wrong_stubs(server, newest))
        assert not found, "\n".join(found)


def wheels_that_are_at_hand_say_what_is_recorded():
    """The environment variable SERVER_WHEELS names a folder of wheels, or one wheel."""
    place = os.environ.get("SERVER_WHEELS")
    if not place:
        return
    wheels = wheels_in(place)
    assert wheels, f"SERVER_WHEELS: {place} has no wheel of {' or '.join(SERVERS)}"
    for wheel in wheels:
        made = wheel.description()
        known = recorded()[wheel.server].get(wheel.version)
        print(f"ran: {wheel.server} {wheel.version}, {'as recorded' if known else 'not recorded'}")
        if known is not None:
            for part, there in made["modules"].items():
                assert there == known["modules"].get(part), f"{wheel.version}: {part} differs"
            assert made["calls"] == known["calls"], f"{wheel.version}: calls differ"
        found = list(faults(wheel.server, Described(wheel.server, wheel.version, made)))
        assert not found, "\n".join(f"{wheel.server} {wheel.version}: {one}" for one in found)


def changed(edit, of=-1, version="99.0.0"):
    """Returns the faults that are found if a vLLM's description, by default the newest, is changed
    as its next version might change it."""
    description = json.loads(json.dumps(list(recorded()["vllm"].values())[of]))
    names = {name: held for found in description["modules"].values()
             for name, held in found.items()}
    edit(names, description)
    return list(faults("vllm", Described("vllm", version, description)))


def a_changed_signature_is_found():
    """Makes one change for each rule that faults() checks."""
    def renamed(names, _):
        forward = names["TritonAttentionImpl"]["methods"]
        forward["forward"] = forward["forward"].replace("kv_cache", "cache")

    def grown(names, _):
        build = names["TritonAttentionMetadataBuilder"]["methods"]
        build["build"] += ", num_splits"

    def fewer(names, _):
        held = names["CommonAttentionMetadata"]
        held["attributes"] = held["attributes"].replace("slot_mapping", "slots")

    def lost(names, _):
        for name in ("AttentionImpl", "TritonAttentionImpl"):
            del names[name]["methods"]["fused_output_quant_supported"]

    def unnamed(_, description):
        description["modules"]["vllm/envs.py"].clear()

    def unset(names, _):
        for name in ("TritonAttentionImpl", "AttentionImpl", "AttentionImplBase"):
            held = names[name]
            held["attributes"] = held["attributes"].replace("logits_soft_cap", "cap")

    def flag(names, _):
        held = names["AttentionBackend"]
        held["attributes"] = held["attributes"].replace("forward_includes_kv", "includes_kv")
        held = names["TritonAttentionBackend"]
        held["attributes"] = held["attributes"].replace("forward_includes_kv", "includes_kv")

    def moved(_, description):
        modules = description["modules"]
        modules["vllm/attention/base.py"] = modules.pop("vllm/v1/attention/backend.py")

    def ordered(names, _):
        held = names["TritonAttentionImpl"]["methods"]
        held["__init__"] = held["__init__"].replace("head_size, scale", "scale, head_size")

    def called(_, description):
        description["calls"]["self.impl.forward"][0] += ", slot_mapping="

    def latent_renamed(names, _):
        held = names["MLACommonImpl"]["methods"]
        held["forward_mqa"] = held["forward_mqa"].replace("kv_c_and_k_pe_cache", "cache")

    def latent_fewer(names, _):
        held = names["MLACommonDecodeMetadata"]
        held["attributes"] = held["attributes"].replace("seq_lens", "lengths")

    def latent_called(_, description):
        description["calls"]["self.impl.forward_mqa"] = ["mqa_q, kv_cache, attn_metadata, a, b"]

    def unasked(_, description):
        del description["calls"]["backend_cls.full_cls_name"]

    expected = (
        (renamed, "FigraphImpl.forward: its parameter 5 is kv_cache, it must be cache"),
        (grown, "FigraphMetadataBuilder.build: it lacks num_splits"),
        (fewer, "reads slot_mapping, which CommonAttentionMetadata has not"),
        (lost, "FigraphImpl.fused_output_quant_supported: TritonAttentionImpl has no such method"),
        (unnamed, "vllm.envs has no VLLM_BATCH_INVARIANT"),
        (unset, "reads logits_soft_cap, which TritonAttentionImpl has not"),
        (flag, "forward_includes_kv_cache_update: TritonAttentionBackend has no such attribute"),
        (moved, "vllm.v1.attention.backend has no AttentionCGSupport"),
        (ordered, "its parameter 2 is head_size, it must be scale"),
        (called, "FigraphImpl.forward: it is called with slot_mapping="),
        (latent_renamed, "FigraphLatentImpl.forward_mqa: its parameter 2 is kv_c_and_k_pe_cache"),
        (latent_fewer, "reads seq_lens, which MLACommonDecodeMetadata has not"),
        (latent_called, "FigraphLatentImpl.forward_mqa: it is called with mqa_q, kv_cache"),
        (unasked, "nobody calls backend_cls.full_cls_name"),
    )
    for edit, words in expected:
        found = changed(edit)
        assert any(words in one for one in found), f"{edit.__name__}: {words}: {found}"
    assert changed(lambda *_: None) == []


def methods_that_only_some_versions_have_must_be_in_those():
    def without(name):
        def edit(names, _):
            for held in names.values():
                if isinstance(held, dict):
                    held["methods"].pop(name, None)
        return edit

    late, early = "get_varlen_cudagraph_max_query_len", "get_kv_cache_shape"
    found = changed(without(late))
    for name in ("FigraphMetadataBuilder", "FigraphLatentMetadataBuilder"):
        assert any(f"{name}.{late}" in one for one in found), found
    assert changed(without(late), version="0.32.9") == []
    found = changed(without(early), 0, "0.28.9")
    assert [one.partition(":")[0] for one in found] == [f"FigraphLatentBackend.{early}"], found
    assert changed(without(early), 0, "0.29.0") == []


def entry_points_are_in_the_groups_that_servers_read():
    with open(os.path.join(ROOT, "python/backend.py"), encoding="utf-8") as file:
        text = file.read()
    for server, found in recorded().items():
        for description in found.values():
            groups = {eval(value) for names in description["modules"].values()
                      for name, value in names.items() if name.endswith("PLUGINS_GROUP")}
            assert len(groups) == 1, (server, groups)
            assert f"[{groups.pop()}]" in text, server


def a_folder_without_wheels_is_refused():
    was = os.environ.get("SERVER_WHEELS")
    os.environ["SERVER_WHEELS"] = HERE
    try:
        refused("has no wheel of", wheels_that_are_at_hand_say_what_is_recorded)
    finally:
        os.environ.pop("SERVER_WHEELS")
        if was is not None:
            os.environ["SERVER_WHEELS"] = was


CASES = [
    our_classes_fit_each_recorded_version,
    each_server_is_recorded_in_its_versions,
    stubs_have_the_signatures_of_the_newest_version,
    wheels_that_are_at_hand_say_what_is_recorded,
    a_changed_signature_is_found,
    methods_that_only_some_versions_have_must_be_in_those,
    entry_points_are_in_the_groups_that_servers_read,
    a_folder_without_wheels_is_refused,
]


def record(paths):
    """Writes the descriptions of the wheels, in the order of their versions. A server of which no
    wheel is given keeps its descriptions."""
    wheels = [one for path in paths for one in wheels_in(path)]
    made = recorded() | {one.server: {} for one in wheels}
    for wheel in sorted(wheels, key=lambda one: [int(n) for n in re.findall(r"\d+", one.version)]):
        made[wheel.server][wheel.version] = wheel.description()
    with open(RECORDED, "w", encoding="utf-8") as file:
        json.dump(made, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["record"]:
        record(sys.argv[2:])
    else:
        run(CASES)
