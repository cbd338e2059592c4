# Makefile: builds, tests, shows and installs libfigraph. `make help` lists what it does.
#
# Sources are found by wildcard and objects live in build/$(VARIANT), so variants never mix; kernels
# are compiled once for all, and all or, without nvcc, none are in a library. Parsing needs nothing
# installed. Invariant: nothing links libcuda or libnccl; they are opened at run time.

VARIANT ?= release
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
JOBS ?= $(shell nproc)
NVCC ?= $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
VARIANTS := release debug asan tsan clang fuzz
OWN_CC := $(if $(filter asan clang fuzz,$(VARIANT)),clang,gcc)
CC := $(if $(filter default,$(origin CC)),$(OWN_CC),$(CC))
IS_CLANG := $(findstring clang,$(CC))
ifneq ($(words $(VARIANT))$(filter $(VARIANT),$(VARIANTS)),1$(VARIANT))
$(error VARIANT is "$(VARIANT)": it is one of $(VARIANTS))
endif
# What `tools/setup.sh --bundle` made stands before what the system has, in test scripts too.
DEPS := $(wildcard .deps/lib/*.a)
ifneq ($(DEPS),)
export C_INCLUDE_PATH := $(CURDIR)/.deps/include
export LIBRARY_PATH := $(CURDIR)/.deps/lib
endif

# ---- Flags ---------------------------------------------------------------------------------------
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wcast-qual -Wmissing-prototypes
# Under other flags, -O3 say, a compiler warns of what is sound: whoever brings some is not stopped.
WARNINGS += $(if $(CFLAGS)$(CPPFLAGS),,-Werror)
# clang calls a row of a table that names its last fields and leaves out others half filled.
WARNINGS += $(if $(IS_CLANG),-Wno-missing-field-initializers)
FLAGS_release := -O2 -g
# What tests alone are linked with keeps functions and lines, for stacks, and compiles the faster.
FLAGS_clang := -O2 -g1
FLAGS_debug := -O0 -g -DFIG_CHECK_THREADS
# A sanitizer's checks hide from gcc that a variable is set, and a sanitizer does not see the
# checked calls that some systems ask for (__read_chk); the other variants keep both.
FLAGS_sanitized := -O2 -g1 -fno-omit-frame-pointer -U_FORTIFY_SOURCE \
    $(if $(IS_CLANG),,-Wno-maybe-uninitialized) \
    -DFIG_CHECK_THREADS
FLAGS_asan := $(FLAGS_sanitized) -fsanitize=address,undefined -fno-sanitize-recover=all
FLAGS_tsan := $(FLAGS_sanitized) -fsanitize=thread
FLAGS_fuzz := $(FLAGS_asan) -fsanitize=fuzzer-no-link
# Twins and the planner's loops over rows rely on the compiler to make vectors of them.
$(foreach folder,kernels planner,$(foreach variant,release clang,\
    $(eval FLAGS_$(variant)_$(folder) := -O3)))
# Optimising a test takes longer than running it: what it does often is in tests/support.
CFLAGS_ALL = -std=c11 -D_POSIX_C_SOURCE=200809L -iquote . -Iinclude $(WARNINGS) -fPIC -pthread \
    -fvisibility=hidden $(FLAGS_$(VARIANT)) $(FLAGS_$(VARIANT)_$(firstword $(subst /, ,$<))) \
    $(if $(filter tests/test_%,$<),-O0) \
    $(CPPFLAGS) $(CFLAGS)
NVCCFLAGS := -std=c++17 -O3 -I. -Iinclude -fatbin -Werror all-warnings
CHIPS.hopper := -gencode arch=compute_90a,code=sm_90a
# One PTX for every chip but that one: what is tested where it runs on a 9.0 is what an 8.0 runs.
CHIPS.plain := -gencode arch=compute_80,code=[sm_80,sm_90,compute_80]
LIBS := -lzstd -ljansson -lhwloc -lm -lpthread
LINK = echo "link $@" && $(CC) $(FLAGS_$(VARIANT)) -pthread $(LDFLAGS) $(filter %.o,$^) \
    $(filter %.a,$^) -o $@

# ---- Lists ---------------------------------------------------------------------------------------
BUILD := build/$(VARIANT)
OUT := $(if $(filter release,$(VARIANT)),build,$(BUILD))
objects = $(patsubst %.c,$(BUILD)/%.o,$(wildcard $(1)))
FATBINS := $(if $(NVCC),$(shell awk '/^ *image/ { at = "build/kernels/" $$2; \
    print at ".hopper.fatbin"; if ($$1 == "image") print at ".plain.fatbin" }' kernels/images.S))
# Named after what is in it, and there only once: with and without nvcc never passes for the other.
IMAGES := build/kernels/images.$(if $(NVCC),all,none).o
# The kernel of examples/, by the same rules.
FEW := build/examples/blas_few.fatbin
FEW_IMAGE := build/examples/blas_few.$(if $(NVCC),all,none).o
SAY_IMAGES = $(if $(NVCC),$(words $(FATBINS)) kernel images of $$(cat $(FATBINS) | wc -c) \
    bytes,no kernel images: nvcc was not found)
FFI := $(call objects,ffi/*.c)
LIBRARY := $(call objects,planner/*.c kernels/*.c graphs/*.c graphs/*/*.c engine/*.c engine/*/*.c) \
    $(IMAGES)
# Of figraph what tests use, and what has a test of its own.
SUPPORT := $(call objects,tests/support/*.c examples/*_*.c $(addprefix tools/figraph/,terminal/*.c \
    $(addprefix step/,check.c schedule.c session.c standard.c synthetic.c truth*.c) \
    bench/bench_table.c serve/serve_[bpt]*.c tune/tune_[flt]*.c)) $(FEW_IMAGE)
GRID := $(call objects,tests/grid/*.c)
FUZZ := $(call objects,tests/fuzz/fuzz*.c)
FUZZERS := parse step config trace
# Each is linked with the static library, so that tests/support/fault.c can stand before its calls.
TESTS := $(patsubst tests/%.c,%,$(wildcard tests/test_*.c))
GPU_TESTS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/gpu/*.c)) # which need one
# Those that meet a thread; in the others tsan has nothing to find. The four left out name the
# engine, and all of them happens on the test's own thread.
THREADED := $(filter-out test_append_capture test_cuda_lanes test_overlap test_places,$(patsubst \
    tests/%.c,%,$(shell grep -slE 'engine/|ffi/|fig_engine_|pthread' tests/test_*.c)))
binaries = $(addprefix build/$(1)/tests/,$(filter $(if $(filter tsan,$(1)),$(THREADED),%),$(TESTS)))
# What tests/support/fault.c can make fail; a name without its gate there does not link.
GATES := malloc calloc realloc aligned_alloc posix_memalign strdup open openat read write pread \
    pwrite lseek fstat fsync fchmod ftruncate flock close linkat rename renameat unlink unlinkat \
    getrandom mkstemp mmap fopen fdopen fread fwrite fflush fclose __read_chk __pread_chk __open_2 \
    __openat_2 __fread_chk pthread_create pthread_mutex_init pthread_cond_init hwloc_alloc \
    hwloc_bitmap_alloc $(addprefix hwloc_topology_,init load set_components)
# One more than there are cores, since some tests wait.
TEST_JOBS = $(shell expr $(JOBS) + 1)
# Setting up comes before anything is looked for or built, hence a second make.
SUBMAKE = $(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))
VERSION = $(shell awk '$$2 == "FIG_VERSION" { v = $$3; \
    print int(v / 10000) "." int(v / 100) % 100 "." v % 100 }' include/figraph.h)

# ---- Rules ---------------------------------------------------------------------------------------
.PHONY: all binaries built clean demo format fuzz help install report setup suite test \
    test-damage test-gpu test-grid tidy uninstall wheel
.DELETE_ON_ERROR .SECONDEXPANSION:

all: $(addprefix $(OUT)/,libfigraph.a libfigraph.so libfigraph_ffi.so libfigraph_python.so \
    figraph figraph-launch layers) ## all but tests
	@echo "made $^ with $(SAY_IMAGES)"

$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(@D) && echo "cc   $@"
	@$(CC) $(CFLAGS_ALL) -MMD -MP -c $< -o $@
$(FATBINS): build/kernels/%.fatbin: kernels/$$(basename $$*).cu Makefile
	@mkdir -p $(@D) && echo "nvcc $@"
	@$(NVCC) $(NVCCFLAGS) $(CHIPS$(suffix $*)) -MMD -MP -MF $(@:fatbin=d) $< -o $@
$(FATBINS:fatbin=sha256): %.sha256: %.fatbin
	@sha256sum < $< | cut -c 1-64 | sed -e 's/../0x&,/g' -e 's/,$$//' -e 's/^/.byte /' > $@
$(IMAGES): kernels/images.S $(FATBINS) $(FATBINS:fatbin=sha256) Makefile
	@mkdir -p $(@D) && rm -f $(@D)/images.*.o && echo "cc   $@"
	@$(CC) $(if $(NVCC),-DFIG_IMAGES) -c $< -o $@
$(FEW): examples/blas_few.cu Makefile
	@mkdir -p $(@D) && echo "nvcc $@"
	@$(NVCC) $(NVCCFLAGS) $(CHIPS.hopper) -MMD -MP -MF $(@:fatbin=d) $< -o $@
$(FEW_IMAGE): examples/blas_few.S $(if $(NVCC),$(FEW)) Makefile
	@mkdir -p $(@D) && rm -f $(@D)/blas_few.*.o && echo "cc   $@"
	@$(CC) $(if $(NVCC),-DFEW_IMAGE='"$(FEW)"') -c $< -o $@
$(OUT)/libfigraph.a: $(LIBRARY)
	@rm -f $@ && echo "ar   $@" && ar rcs $@ $^
$(OUT)/libfigraph.so: $(LIBRARY) $(DEPS)
	@$(LINK) -shared -Wl,-soname,libfigraph.so.0 -Wl,-z,defs -Wl,--exclude-libs,ALL $(LIBS)
	@ln -sf libfigraph.so $@.0
$(BUILD)/libfigraph_ffi.a: $(FFI)
	@rm -f $@ && echo "ar   $@" && ar rcs $@ $^
# It goes where nothing is installed: zstd is taken in, and -z defs shows what else is needed.
$(OUT)/libfigraph_ffi.so: $(FFI) $(OUT)/libfigraph.a $(DEPS)
	@$(LINK) -shared -Wl,-soname,libfigraph_ffi.so.0 -Wl,-z,defs -Wl,-z,nodelete -Wl,--gc-sections \
	    -Wl,--exclude-libs,ALL -l:libzstd.a -lm -lpthread
# What it names of Python's is in the process that loads it.
$(OUT)/libfigraph_python.so: $(call objects,python/*.c)
	@$(LINK) -shared -Wl,-soname,libfigraph_python.so.0
$(OUT)/figraph: $(call objects,tools/figraph/*.c tools/figraph/*/*.c)
$(OUT)/figraph-launch: $(call objects,tools/launch/*.c) $(DEPS)
	@$(LINK) -lhwloc
$(OUT)/layers: $(call objects,examples/*.c) $(FEW_IMAGE)
$(BUILD)/grid: $(GRID) $(filter %/truth.o %/truth_attention.o %/place.o %/kept_kernels.o,$(SUPPORT))
$(OUT)/figraph $(OUT)/layers $(BUILD)/grid: $(OUT)/libfigraph.a $(DEPS)
	@$(LINK) $(LIBS)
# What a wheel holds, without what only a debugger reads; kernels are in two libraries, not in three
# programs.
WHEEL := $(BUILD)/wheel
$(WHEEL)/lib%.so.0: $(OUT)/lib%.so
	@mkdir -p $(@D) && strip --strip-unneeded $< -o $@
$(WHEEL)/figraph-launch: $(OUT)/figraph-launch
	@mkdir -p $(@D) && strip --strip-unneeded $< -o $@
$(WHEEL)/figraph: $(call objects,tools/figraph/*.c tools/figraph/*/*.c) $(WHEEL)/libfigraph.so.0
	@$(LINK) -s $(WHEEL)/libfigraph.so.0 -Wl,-rpath,'$$ORIGIN' -lm
built: $(addprefix $(WHEEL)/,libfigraph.so.0 libfigraph_ffi.so.0 libfigraph_python.so.0 figraph \
    figraph-launch)
$(TESTS:%=$(BUILD)/tests/%) $(GPU_TESTS): %: %.o $(SUPPORT) $(BUILD)/libfigraph_ffi.a \
    $(OUT)/libfigraph.a $(DEPS)
	@$(LINK) $(GATES:%=-Wl,--wrap=%) -lcmocka $(LIBS)
# LLVM's linker takes a third of the time of GNU's, for some hundreds of programs.
$(TESTS:%=$(BUILD)/tests/%): LDFLAGS += $(if $(shell command -v ld.lld),-fuse-ld=lld)
$(BUILD)/tests/test_cuda_api.o: CPPFLAGS += $(NVCC:%/bin/nvcc=-isystem %/include) # for <cuda.h>
# They run some of the grid, and build/grid all of it.
$(BUILD)/tests/test_grid $(BUILD)/tests/test_ledger: $(filter-out %/grid.o,$(GRID))
$(BUILD)/tests/test_fuzz: $(FUZZ)
# libFuzzer calls one entry of each program; the library in it counts where it has been.
$(FUZZERS:%=$(BUILD)/fuzz_%): $(BUILD)/fuzz_%: $(BUILD)/libfuzzer_%.o $(FUZZ) $(filter \
    %/forgery.o %/stranger.o %/synthetic.o %/serve_trace.o,$(SUPPORT)) $(OUT)/libfigraph.a \
    $(filter $(BUILD)/tools/figraph/terminal/%,$(SUPPORT)) $(DEPS)
	@$(LINK) -fsanitize=fuzzer $(LIBS)
$(BUILD)/libfuzzer_%.o: tests/fuzz/libfuzzer.c Makefile
	@mkdir -p $(@D) && echo "cc   $@" && $(CC) $(CFLAGS_ALL) -DFUZZ=fig_fuzz_$* -c $< -o $@
# The library looks in the process for functions that these play.
$(foreach test,test_tvm_call test_tvm_entries,$(BUILD)/tests/$(test)): LDFLAGS += -rdynamic
# A test of families puts some of its own before those of the table.
$(foreach test,test_families test_cuda_maps,$(BUILD)/tests/$(test)): LDFLAGS += \
    -Wl,--wrap=fig_table_families
binaries: $(call binaries,$(VARIANT))

# ---- Targets -------------------------------------------------------------------------------------
setup: ## install the compiler and libraries that are missing (Debian, Ubuntu)
	@tools/setup.sh
test: ## tidy and all tests by gcc, by clang under asan and ubsan, those with threads under tsan
	@tools/setup.sh --test
	@$(SUBMAKE) VARIANT=release all binaries $(GPU_TESTS)
	@$(SUBMAKE) VARIANT=asan binaries
	@$(SUBMAKE) VARIANT=tsan binaries
	@BUILD=build CC="$(CC)" CXX="$(CXX)" NVCC=$(NVCC) tests/run -j$(TEST_JOBS) tests/tidy \
	    $(wildcard tests/test_*.sh) $(foreach v,tsan asan release,$(call binaries,$(v)))
suite: binaries ## the tests of one VARIANT; TESTS="test_ring test_plan" runs those alone
	@tests/run -j$(TEST_JOBS) $(call binaries,$(VARIANT))
test-gpu: setup ## the tests on this machine's GPU; TOOL=memcheck, racecheck or synccheck
	@$(SUBMAKE) all binaries $(BUILD)/grid $(GPU_TESTS)
	@BUILD=$(BUILD) JOBS=$(JOBS) TOOL=$(TOOL) tests/gpu/run
test-grid: setup ## every shape of tests/grid; hours, goes on where it was; GRID_OPTIONS="--restart"
	@$(SUBMAKE) $(BUILD)/grid && $(BUILD)/grid --jobs $(JOBS) $(GRID_OPTIONS)
test-damage: setup ## each byte of the golden files to each other, under asan; hours, goes on
	@$(SUBMAKE) VARIANT=asan build/asan/tests/test_golden_damage
	@tests/damage $(JOBS)
fuzz: ## every fuzzer for SECONDS=600, with clang; what leads further stays in build/fuzz
	@tools/setup.sh --test
	@$(SUBMAKE) VARIANT=fuzz $(FUZZERS:%=build/fuzz/fuzz_%)
	@tests/fuzz/run $(or $(SECONDS),600) $(FUZZERS)
demo: setup ## capture, save, restore and replay four models' steps, and compare every number
	@$(SUBMAKE) all
	@tools/demo.sh $(OUT)/figraph
report: ## what was measured: build/report.html, and README's drawings and figures
	@tools/report/report.py
tidy: ## check layering, lengths and names as STYLE has them
	@tests/tidy
format: ## lay out every source as .clang-format says
	clang-format -i $(wildcard kernels/*.cu* examples/*.cu $(addsuffix /*.[ch],examples include \
	    planner kernels graphs graphs/* engine engine/* ffi tools/figraph tools/figraph/* tests \
	    tests/*))
install: all ## headers, libraries, figraph.pc and program under $(DESTDIR)$(PREFIX)
	install -d $(addprefix $(DESTDIR),$(PREFIX)/bin $(PREFIX)/include $(LIBDIR)/pkgconfig)
	install -m 644 include/*.h $(DESTDIR)$(PREFIX)/include
	install -m 644 $(OUT)/libfigraph.a $(DESTDIR)$(LIBDIR)/libfigraph.a
	install -m 755 $(OUT)/libfigraph.so $(DESTDIR)$(LIBDIR)/libfigraph.so.$(VERSION)
	ln -sf libfigraph.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libfigraph.so.0
	ln -sf libfigraph.so.0 $(DESTDIR)$(LIBDIR)/libfigraph.so
	install -m 755 $(OUT)/libfigraph_ffi.so $(DESTDIR)$(LIBDIR)/libfigraph_ffi.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' \
	    tools/figraph.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/figraph.pc
	install -m 755 $(OUT)/figraph $(OUT)/figraph-launch $(DESTDIR)$(PREFIX)/bin
uninstall: ## take away what install put there
	rm -f $(addprefix $(DESTDIR),$(PREFIX)/bin/figraph $(PREFIX)/bin/figraph-launch \
	    $(patsubst %,$(PREFIX)/%,$(wildcard include/*.h)) \
	    $(LIBDIR)/pkgconfig/figraph.pc $(LIBDIR)/libfigraph_ffi.so \
	    $(addprefix $(LIBDIR)/libfigraph.,a so so.0 so.$(VERSION)))
wheel: built ## Python's package, as a wheel and an sdist, in build/release/wheel
	@python3 python/backend.py wheel $(WHEEL) $(WHEEL) && python3 python/backend.py sdist $(WHEEL)
	@echo "made in $(WHEEL), with $(SAY_IMAGES)"
clean: ## remove build/
	rm -rf build
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile
	@echo; echo "VARIANT is one of $(VARIANTS); it is $(VARIANT). JOBS is $(JOBS), PREFIX $(PREFIX)."
-include $(wildcard $(BUILD)/*/*.d $(BUILD)/*/*/*.d $(BUILD)/*/*/*/*.d build/kernels/*.d \
    build/examples/*.d)
