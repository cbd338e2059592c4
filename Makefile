# Makefile: builds, tests, shows and installs libfigraph. `make help` lists what it does.
#
# Sources are found by wildcard and objects live in build/$(VARIANT), so variants never mix. Parsing
# needs nothing installed, since `make test` and `make demo` install what is missing themselves.
# Invariant: nothing links libcuda or libnccl; they are opened at run time.

VARIANT ?= release
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
JOBS ?= $(shell nproc)

VARIANTS := release debug asan tsan
ifneq ($(words $(VARIANT))$(filter $(VARIANT),$(VARIANTS)),1$(VARIANT))
$(error VARIANT is "$(VARIANT)": it is one of $(VARIANTS))
endif
ifeq ($(origin CC),default)
CC := gcc
endif

# ---- Flags ---------------------------------------------------------------------------------------
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wcast-qual -Wmissing-prototypes -Werror
FLAGS_release := -O2 -g
FLAGS_debug := -O0 -g
# A sanitizer's checks hide from gcc that a variable is set, and a sanitizer does not see the
# checked calls that some systems ask for (__read_chk); the other variants keep both.
FLAGS_sanitized := -O1 -g -fno-omit-frame-pointer -Wno-maybe-uninitialized -U_FORTIFY_SOURCE
FLAGS_asan := $(FLAGS_sanitized) -fsanitize=address,undefined -fno-sanitize-recover=all
FLAGS_tsan := $(FLAGS_sanitized) -fsanitize=thread
# Twins read like the mathematics and rely on the compiler to make vectors of them.
FLAGS_release_kernels := -O3
CFLAGS_ALL = -std=c11 -D_POSIX_C_SOURCE=200809L -iquote . -Iinclude $(WARNINGS) -fPIC -pthread \
    -fvisibility=hidden $(FLAGS_$(VARIANT)) $(FLAGS_$(VARIANT)_$(firstword $(subst /, ,$<))) \
    $(CPPFLAGS) $(CFLAGS)
LINK = $(CC) $(FLAGS_$(VARIANT)) -pthread $(LDFLAGS)
LIBS := -lzstd -ljansson -lm -lpthread

# ---- Lists ---------------------------------------------------------------------------------------
BUILD := build/$(VARIANT)
OUT := $(if $(filter release,$(VARIANT)),build,$(BUILD))
LIBRARY := $(patsubst %.c,$(BUILD)/%.o,$(wildcard planner/*.c kernels/*.c graphs/*.c engine/*.c))
PROGRAM := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tools/figraph/*.c))
# The program's float64 reference is the tests' second truth as well.
SUPPORT := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/support/*.c tools/figraph/truth*.c))
GRID := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/grid/*.c))
# Each is linked with the static library, so that tests/support/fault.c can stand before its calls.
TESTS := $(patsubst tests/%.c,%,$(wildcard tests/test_*.c))
SCRIPTS := $(wildcard tests/test_*.sh)
# Those that meet a thread; in the others tsan has nothing to find.
THREADED := $(shell grep -lE 'engine/|fig_engine_|pthread' tests/test_*.c 2> /dev/null)
TESTS_tsan = $(filter $(THREADED:tests/%.c=%),$(TESTS))
binaries = $(patsubst %,build/$(1)/tests/%,$(if $(filter tsan,$(1)),$(TESTS_tsan),$(TESTS)))
# What tests/support/fault.c can make fail; a name without its gate there does not link.
GATES := malloc calloc realloc aligned_alloc posix_memalign strdup open read write pread pwrite \
    lseek fstat fsync ftruncate close rename unlink mkstemp mmap fopen fdopen fread fwrite fflush \
    fclose pthread_create pthread_mutex_init pthread_cond_init \
    __read_chk __pread_chk __open_2 __fread_chk
NVCC ?= $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
# Setting up comes before anything is looked for or built, hence a second make.
SUBMAKE = $(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))
VERSION = $(shell awk '$$2 == "FIG_VERSION" { v = $$3; \
    print int(v / 10000) "." int(v / 100) % 100 "." v % 100 }' include/figraph.h)

# ---- Rules ---------------------------------------------------------------------------------------
.PHONY: all binaries clean demo format help install setup suite test test-grid tidy uninstall
.DELETE_ON_ERROR:
.SECONDARY:

all: $(OUT)/libfigraph.a $(OUT)/libfigraph.so $(OUT)/figraph ## the program and both libraries
	@echo "host device only: $(if $(NVCC),kernels/ holds no .cu to compile,nvcc was not found)"

$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(@D)
	@echo "cc   $@"
	@$(CC) $(CFLAGS_ALL) -MMD -MP -c $< -o $@

$(OUT)/libfigraph.a: $(LIBRARY)
	@echo "ar   $@"
	@rm -f $@ && ar rcs $@ $^

$(OUT)/libfigraph.so: $(LIBRARY)
	@echo "link $@"
	@$(LINK) -shared -Wl,-soname,libfigraph.so.0 -Wl,-z,defs $^ $(LIBS) -o $@
	@ln -sf libfigraph.so $@.0

$(OUT)/figraph: $(PROGRAM) $(OUT)/libfigraph.a
	@echo "link $@"
	@$(LINK) $^ $(LIBS) -o $@

$(BUILD)/tests/test_%: $(BUILD)/tests/test_%.o $(SUPPORT) $(OUT)/libfigraph.a
	@echo "link $@"
	@$(LINK) $(GATES:%=-Wl,--wrap=%) $(filter %.o,$^) $(filter %.a,$^) -lcmocka $(LIBS) -o $@
$(BUILD)/tests/test_grid: $(filter-out %/grid.o,$(GRID)) # it runs some of them, grid all

$(BUILD)/grid: $(GRID) $(filter %/truth.o %/truth_attention.o,$(SUPPORT)) $(OUT)/libfigraph.a
	@echo "link $@"
	@$(LINK) $^ $(LIBS) -o $@

binaries: $(call binaries,$(VARIANT))

# ---- Targets -------------------------------------------------------------------------------------
setup: ## install the compiler and libraries that are missing (Debian, Ubuntu)
	@tools/setup.sh

test: setup ## tidy and all tests, again under asan and ubsan, those with threads under tsan
	@$(SUBMAKE) VARIANT=release all binaries
	@$(SUBMAKE) VARIANT=asan binaries
	@$(SUBMAKE) VARIANT=tsan binaries
	@BUILD=build CC=$(CC) CXX=$(CXX) NVCC=$(NVCC) tests/run -j$(JOBS) tests/tidy $(SCRIPTS) \
	    $(foreach v,tsan asan release,$(call binaries,$(v)))

suite: binaries ## the tests of one VARIANT; TESTS="test_ring test_plan" runs those alone
	@tests/run -j$(JOBS) $(call binaries,$(VARIANT))

test-grid: setup ## every shape of tests/grid; hours, goes on where it was; GRID_OPTIONS="--restart"
	@$(SUBMAKE) $(BUILD)/grid && $(BUILD)/grid --jobs $(JOBS) $(GRID_OPTIONS)

demo: setup ## capture, save, restore and replay four models' steps, and compare every number
	@$(SUBMAKE) all
	@tools/demo.sh $(OUT)/figraph

tidy: ## check layering, lengths and names as STYLE has them
	@tests/tidy

format: ## lay out every source as .clang-format says
	clang-format -i $(wildcard $(addsuffix /*.[ch],include planner kernels graphs engine tools \
	    tools/* tests tests/*))

install: all ## header, libraries, figraph.pc and program under $(DESTDIR)$(PREFIX)
	install -d $(addprefix $(DESTDIR),$(PREFIX)/bin $(PREFIX)/include $(LIBDIR)/pkgconfig)
	install -m 644 include/figraph.h $(DESTDIR)$(PREFIX)/include/figraph.h
	install -m 644 $(OUT)/libfigraph.a $(DESTDIR)$(LIBDIR)/libfigraph.a
	install -m 755 $(OUT)/libfigraph.so $(DESTDIR)$(LIBDIR)/libfigraph.so.$(VERSION)
	ln -sf libfigraph.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libfigraph.so.0
	ln -sf libfigraph.so.0 $(DESTDIR)$(LIBDIR)/libfigraph.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' \
	    tools/figraph.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/figraph.pc
	install -m 755 $(OUT)/figraph $(DESTDIR)$(PREFIX)/bin/figraph

uninstall: ## take away what install put there
	rm -f $(addprefix $(DESTDIR),$(PREFIX)/bin/figraph $(PREFIX)/include/figraph.h \
	    $(LIBDIR)/pkgconfig/figraph.pc $(addprefix $(LIBDIR)/libfigraph.,a so so.0 so.$(VERSION)))

clean: ## remove build/
	rm -rf build

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile
	@echo; echo "VARIANT is one of $(VARIANTS); it is $(VARIANT). JOBS is $(JOBS), PREFIX $(PREFIX)."

-include $(wildcard $(patsubst %.o,%.d,$(LIBRARY) $(PROGRAM) $(SUPPORT) $(GRID)) $(BUILD)/tests/*.d)
