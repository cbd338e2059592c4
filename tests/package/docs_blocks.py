"""docs_blocks.py: runs the blocks of code in README.md and docs/, as a reader would.

    docs_blocks.py BUILD [PAGE...]     BUILD contains figraph, figraph-launch, layers and
    libfigraph.a

The blocks run in order, the tutorial's first, in one folder that at first holds build/, include/
and a config.json. The language of a block decides how it runs:

    sh        run by sh -e; after the comment <!-- on a GPU -->, only if FIG_DEVICE is cuda; after
              <!-- on a CPU or two GPUs -->, not if there is one GPU
    console   each line after "$ " is run, and its output must equal the lines that follow it
    c         with a main: compiled as its page shows, linked and run; without a main: compiled
              after the includes and macros of the page's or the tutorial's program
    cpp       a whole program in C++11: compiled as its page shows, linked and run
    python    run by PYTHON, if that is set; tests/python runs the blocks that need torch or JAX

Other blocks are prose. The targets of a page's links must exist, and so must the files, folders and
make targets that the page names.
Invariant: the last line is "N passed, N failed".
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.getcwd()
CONFIG = """{"model_type": "llama", "hidden_size": 1024, "intermediate_size": 64,
 "num_hidden_layers": 1, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64,
 "hidden_act": "silu", "max_position_embeddings": 512, "rope_theta": 10000.0,
 "torch_dtype": "float16"}
"""
CUDA = """typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUstream_st *CUstream;
enum { CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1 };
int cuStreamBeginCapture(CUstream stream, int mode);
int cuStreamEndCapture(CUstream stream, CUgraph *graph);
int cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
int cuGraphDestroy(CUgraph graph);
int cuGraphLaunch(CUgraphExec exec, CUstream stream);
void your_qkv(int layer, CUstream stream);
void your_projection_and_gate_up(int layer, CUstream stream);
void your_down(int layer, CUstream stream);
"""
LANGUAGES = {"sh", "console", "c", "cpp", "python", "text", ""}
SHOWN_ONLY = {"jax-tvm.md", "transformers.md"}  # other tests run the Python of these pages


class Runner:
    def __init__(self, build, folder):
        self.build, self.folder = os.path.abspath(build), folder
        self.passed, self.failed = 0, 0
        os.makedirs(os.path.join(folder, "build"))
        for name in ("figraph", "figraph-launch", "layers", "libfigraph.a"):
            os.symlink(os.path.join(self.build, name), os.path.join(folder, "build", name))
        os.symlink(os.path.join(ROOT, "include"), os.path.join(folder, "include"))
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            file.write(CONFIG)
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("COLUMNS", "LC_ALL", "LC_CTYPE", "BUILD")
        }
        self.environment["PATH"] = f"{folder}/build:{self.environment['PATH']}"
        self.environment["LANG"] = "C.UTF-8"
        self.prologue = ""

    def count(self, what, error):
        if error:
            self.failed += 1
            print(f"{what}: {error}")
        else:
            self.passed += 1

    def shell(self, command):
        environment = self.environment
        if "--ranks 2" in command or "figraph-launch" in command:
            # Each rank needs a GPU of its own, and the machine may have only one, so ranks run on
            # the host.
            environment = {**environment, "FIG_DEVICE": "host"}
        done = subprocess.run(
            ["sh", "-ec", command],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return done.returncode, done.stdout.decode("utf-8", "replace")

    def run(self, command):
        code, said = self.shell(command)
        return f"exit code {code}: {said.strip()[-400:]}" if code else None

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    # ---- By language -----------------------------------------------------------------------------
    def sh(self, text, page):
        lines = [line for line in text.split("\n") if line.strip()]
        for line in lines:
            self.count(f"{page}: {line}", self.run(line))

    def console(self, text, page):
        commands = re.split(r"^\$ ", text, flags=re.M)[1:]
        for command in commands:
            line, _, due = command.partition("\n")
            code, said = self.shell(line)
            error = None if code == 0 else f"exit code {code}"
            if not error and due.strip() and said.strip() != due.strip():
                error = f"it prints\n{said}"
            self.count(f"{page}: {line}", error)

    def compiler(self, page, name):
        """Returns the command that compiles the program's file. The page or the tutorial shows the
        command."""
        for path in (page, "docs/tutorial.md"):
            found = re.search(rf"^    (gcc|g\+\+) ((?:-std\S+ )?{name} .*)$", read(path), re.M)
            if found:
                default, rest = found.groups()
                compiler = os.environ.get("CC" if default == "gcc" else "CXX", default)
                return f"{compiler} -Wall -Wextra -Werror {rest}"
        return None

    def program(self, text, page):
        """Compiles, links and runs a program. Its first line is a comment with the file's name."""
        name = re.match(r"/[*/] (\w+\.cc?)\b", text)
        command = name and self.compiler(page, name.group(1))
        if not command:
            self.count(page, "a program without a name, or that no line builds")
            return
        self.write(name.group(1), text)
        run = f"{command} && ./{name.group(1).partition('.')[0]}"
        self.count(f"{page}: {name.group(1)}", self.run(run))

    def c(self, text, page):
        if re.search(r"\bmain\(", text):
            self.prologue = "".join(
                line + "\n" for line in text.split("\n") if re.match(r"#(include|define)", line)
            )
            self.program(text, page)
            return
        self.write("prologue.h", CUDA + self.prologue)
        self.write("example.c", text)
        compile_ = f"{os.environ.get('CC', 'gcc')} -std=c11 -fsyntax-only -Wall -Wextra -Werror"
        first = text.split("\n", 1)[0]
        self.count(
            f"{page}: {first}", self.run(f"{compile_} -Iinclude -include prologue.h example.c")
        )

    def cpp(self, text, page):
        self.program(text, page)

    def python(self, text, page):
        python = os.environ.get("PYTHON")
        if not python or "figraph.torch" in text or os.path.basename(page) in SHOWN_ONLY:
            return
        self.write("example.py", "import figraph\n" + text)
        self.count(f"{page}: its Python", self.run(f"'{python}' example.py"))


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def blocks(text):
    """Returns (language, preceding comment, text) of each block."""
    for found in re.finditer(r"(?:<!-- ([^>]*) -->\n)?^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        yield found.group(2), found.group(1) or "", found.group(3)


def names(page, text):
    """Yields a message for each name on the page that does not exist."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#]*)(?:#[^)]*)?\)", prose):
        if target and not target.startswith("http"):
            if not os.path.exists(os.path.join(os.path.dirname(page), target)):
                yield f"a link to {target}, which is not there"
    for anchor_page, anchor in re.findall(r"\]\(([^)#]*)#([^)]*)\)", prose):
        other = os.path.normpath(os.path.join(os.path.dirname(page), anchor_page or "."))
        heads = read(page if not anchor_page else other)
        slugs = {
            re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-")
            for head in re.findall(r"^#+ (.*)$", heads, re.M)
        }
        if anchor not in slugs:
            yield f"a link to {anchor_page}#{anchor}, which is no heading"
    folders = "tools|tests|engine|graphs|kernels|planner|ffi|python|examples|include"
    paths = rf"\b((?:{folders})/[\w./-]*\w)"
    for path in set(re.findall(paths, prose)):
        if "NAME" in path or "ROOM" in path or "OP" in path or "*" in path:
            continue
        if not os.path.exists(path) and not os.path.exists(path + "/"):
            if not any(os.path.exists(f"{path}{suffix}") for suffix in (".c", ".h", ".sh")):
                yield f"{path}, which is not there"
    makefile = read("Makefile")
    for target in set(re.findall(r"`make ([a-z-]+)`|^    make ([a-z-]+)", text, re.M)):
        target = target[0] or target[1]
        if not re.search(rf"^{target}:", makefile, re.M):
            yield f"make {target}, which is no target"


def serving_loop_is_guarded(runner):
    """The tutorial's program must notice wrong values: without the lines that set its pages, it
    must fail."""
    whole = read(os.path.join(runner.folder, "serve.c"))
    lines, skip = [], False
    for line in whole.split("\n"):
        skip = skip or "seen % 16 == 1" in line
        if not skip:
            lines.append(line)
        skip = skip and not line.endswith(";")
    runner.write("serve.c", "\n".join(lines))
    command = runner.compiler("docs/tutorial.md", "serve.c")
    code, said = runner.shell(f"{command} && ./serve")
    runner.count("serve.c without its pages", None if code and "wrong" in said else said or "fine")
    runner.write("serve.c", whole)
    code, said = runner.shell(f"{command} && mkdir elsewhere && cd elsewhere && ../serve")
    runner.count("serve.c without its file", None if code and "tutorial.fig" in said else said)


def runs_here(comment):
    """Tells whether a block with this comment runs on this machine."""
    if comment not in ("on a GPU", "on a CPU or two GPUs"):
        return True
    on_gpu = os.environ.get("FIG_DEVICE") == "cuda"
    return on_gpu if comment == "on a GPU" else not on_gpu or len(glob.glob("/dev/nvidia[0-9]")) > 1


def main():
    build, *pages = sys.argv[1:]
    pages = pages or ["README.md"] + sorted(
        os.path.join("docs", name) for name in os.listdir("docs") if name.endswith(".md")
    )
    pages += [page for page in ("CONTRIBUTING.md", "SECURITY.md") if page not in pages]
    # The tutorial's blocks run first, since other pages use the program and the file that they
    # make.
    pages.sort(key=lambda page: page != "docs/tutorial.md")
    folder = tempfile.mkdtemp()
    try:
        runner = Runner(build, folder)
        for page in pages:
            text = read(page)
            for language, comment, block in blocks(text):
                if language not in LANGUAGES:
                    runner.count(page, f"a block of {language}, which nothing runs")
                elif runs_here(comment):
                    getattr(runner, language, lambda *_: None)(block, page)
            faults = list(names(page, text))
            runner.count(f"{page}: names", "; ".join(faults))
        if "docs/tutorial.md" in pages:
            serving_loop_is_guarded(runner)
    finally:
        shutil.rmtree(folder)
    print(f"{runner.passed} passed, {runner.failed} failed")
    return runner.failed > 0 or runner.passed == 0


if __name__ == "__main__":
    sys.exit(main())
