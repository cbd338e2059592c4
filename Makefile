# Makefile: builds, tests and installs libfigraph. `make help` lists the targets.
#
# Sources are found by wildcard, and objects are in build/$(VARIANT), so variants never mix. Kernels
# are compiled once for all variants; a library holds all of them or, without nvcc, none. Parsing
# this file needs no installed package. Invariant: nothing links libcuda or libnccl; they are opened
# at run time.

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
# The bundle of `tools/setup.sh --bundle` takes precedence over the system's libraries, also in test
# scripts.
DEPS := $(wildcard .deps/lib/*.a)
ifneq ($(DEPS),)
export C_INCLUDE_PATH := $(CURDIR)/.deps/include
export LIBRARY_PATH := $(CURDIR)/.deps/lib
endif

# ---- Flags ---------------------------------------------------------------------------------------
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wcast-qual -Wmissing-prototypes
# With other flags, such as -O3, a compiler may warn about correct code, so a user's own flags turn
# off -Werror.
WARNINGS += $(if $(CFLAGS)$(CPPFLAGS),,-Werror)
# clang warns about designated initialisers that leave out some fields of a table's row.
WARNINGS += $(if $(IS_CLANG),-Wno-missing-field-initializers)
FLAGS_release := -O2 -g
# Only tests use this variant. Debug information with functions and lines is enough for stacks, and
# compiles faster.
FLAGS_clang := -O2 -g1
FLAGS_debug := -O0 -g -DFIG_CHECK_THREADS
# With a sanitizer's checks, gcc warns about some variables as if they could be unset, although they
# are always set. A sanitizer does not intercept the checked functions that some systems use by
# default (__read_chk). So sanitizer variants turn off this warning and these functions.
FLAGS_sanitized := -O2 -g1 -fno-omit-frame-pointer -U_FORTIFY_SOURCE \
    $(if $(IS_CLANG),,-Wno-maybe-uninitialized) \
    -DFIG_CHECK_THREADS
FLAGS_asan := $(FLAGS_sanitized) -fsanitize=address,undefined -fno-sanitize-recover=all
FLAGS_tsan := $(FLAGS_sanitized) -fsanitize=thread
FLAGS_fuzz := $(FLAGS_asan) -fsanitize=fuzzer-no-link
FLAGS_tsan_truth := -fno-sanitize=thread
# Reference kernels and the planner's loops over rows rely on the compiler to vectorise them.
$(foreach folder,kernels planner,$(foreach variant,release clang asan tsan,\
    $(eval FLAGS_$(variant)_$(folder) := -O3)))
# Every build except the user's asserts the library's invariants. In the user's build, a broken
# invariant fails a call (planner/status.h) and never ends the process. Threads of some C libraries
# have 128 KB of stack, and the caller may have used a part of it. The largest frames are 64 KB: the
# bindings in a call of a program, and a message in ranks/post.c.
$(foreach folder,planner kernels graphs engine ffi,\
    $(eval FLAGS_release_$(folder) += -DNDEBUG -Wframe-larger-than=73728))
# Tests are not optimised, because optimising them takes longer than running them. Their hot code is
# in tests/support.
CFLAGS_ALL = -std=c11 -D_POSIX_C_SOURCE=200809L -iquote . -Iinclude $(WARNINGS) -fPIC -pthread \
    -fvisibility=hidden $(FLAGS_$(VARIANT)) $(FLAGS_$(VARIANT)_$(firstword $(subst /, ,$<))) \
    $(if $(filter test_%,$(notdir $<)),-O0) \
    $(CPPFLAGS) $(CFLAGS)
NVCCFLAGS := -std=c++17 -O3 -I. -Iinclude -fatbin -Werror all-warnings
CHIPS.hopper := -gencode arch=compute_90a,code=sm_90a
PTX.hopper := -ptx -arch=compute_90a
PTX.plain := -ptx -arch=compute_80
# One PTX serves all chips except 9.0, so running it on a 9.0 tests the code that an 8.0 runs.
CHIPS.plain := -gencode arch=compute_80,code=[sm_80,sm_90,compute_80]
# Images that only an 8.0 loads are compressed if they are large, so that all fit into a file
# together.
PACKED := --compress-mode=speed -Xfatbin -compress-all
$(foreach name,all_reduce all_reduce_two_shot attention_copy decode_attention \
    decode_attention_long gated rms_norm rope,\
    $(eval CHIPS.$(name).plain := $(CHIPS.plain) $(PACKED)))
# These have no code for 9.0. There only tests use them, and the driver compiles the PTX.
CHIPS.scored_prompt.plain := -gencode arch=compute_80,code=[sm_80,compute_80]
CHIPS.prompt_attention.plain := $(CHIPS.scored_prompt.plain) $(PACKED)
LIBS := -lzstd -ljansson -lhwloc -lm -lpthread
LINK = echo "link $@" && $(CC) $(FLAGS_$(VARIANT)) -pthread $(LDFLAGS) $(filter %.o,$^) \
    $(filter %.a,$^) -o $@

# ---- Lists ---------------------------------------------------------------------------------------
BUILD := build/$(VARIANT)
OUT := $(if $(filter release,$(VARIANT)),build,$(BUILD))
objects = $(patsubst %.c,$(BUILD)/%.o,$(wildcard $(1)))
FATBINS := $(if $(NVCC),$(shell awk -F '[(), ]+' '/^ *FAMILY/ { at = "build/kernels/" $$6; \
    end = $$7 ~ /^TEXT/ ? ".ptx.zst" : ".fatbin"; print at ".hopper" end; \
    if ($$7 ~ /ALL$$/) print at ".plain" end }' kernels/table/operations.h))
# Templates are PTX, which the library completes for a score. They are images too.
TEMPLATES := $(filter %.zst,$(FATBINS))
FATBINS := $(filter %.fatbin,$(FATBINS))
HASHES := $(FATBINS:fatbin=sha256) $(TEMPLATES:ptx.zst=sha256)
# The file's name says whether it holds kernels, and only one such file exists, so builds with and
# without nvcc are never confused.
IMAGES := build/kernels/images.$(if $(NVCC),all,none).o
# The same for the kernel of examples/.
FEW := build/examples/blas_few.fatbin
FEW_IMAGE := build/examples/blas_few.$(if $(NVCC),all,none).o
SAY_IMAGES = $(if $(NVCC),$(words $(FATBINS)) kernel images of $$(cat $(FATBINS) | wc -c) \
    bytes,no kernel images: built without nvcc)
FFI := $(call objects,ffi/*.c ffi/*/*.c)
LIBRARY := $(call objects,planner/*.c planner/*/*.c kernels/*/*.c graphs/*.c graphs/*/*.c \
    engine/*.c engine/*/*.c) $(IMAGES)
# Tests share one library of the kernel images. With a copy in each, they would take 25 GB.
TEST_IMAGES := $(IMAGES:.o=.so)
WITH_IMAGES := -Wl,--push-state,--no-as-needed $(TEST_IMAGES) -Wl,--pop-state \
    $(foreach up,../.. ../../.. ../../../..,-Wl,-rpath,'$$ORIGIN/$(up)/kernels')
# The objects of libfigraph_kernels.so, and the flags that link a library beside it.
KERNELS := $(BUILD)/kernels/table/images.o $(IMAGES)
BESIDE = -Wl,--push-state,--no-as-needed $(OUT)/libfigraph_kernels.so -Wl,--pop-state \
    -Wl,-rpath,'$$ORIGIN'
# The objects of the program figraph that tests use or test.
SUPPORT := $(call objects,tests/support/*.c tests/support/*/*.c examples/*_*.c \
    $(addprefix tools/figraph/,terminal/*.c inspect/*.c \
    $(addprefix step/,check*.c schedule.c session.c standard*.c synthetic.c) truth/*.c \
    bench/bench_table.c serve/serve_[bpt]*.c tune/tune_[flt]*.c)) $(FEW_IMAGE)
GRID := $(filter-out %/test_grid.o %/test_ledger.o,$(call objects,tests/grid/*.c))
FUZZ := $(call objects,tests/fuzz/fuzz*.c)
FUZZERS := parse step config trace score
# Each test is linked with the static library, so that tests/support/fault.c can wrap its calls.
SOURCES := $(wildcard tests/*/test_*.c tests/*/*/test_*.c)
SCRIPTS := $(wildcard tests/*/test_*.sh tests/*/*/test_*.sh)
TESTS := $(notdir $(SOURCES:.c=))
GPU_TESTS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/gpu/*.c tests/gpu/*/*.c)) # which need one
# Tests with threads; in the other tests tsan has nothing to find. The tests that are filtered out
# mention the engine, but run only on their own thread. Others that do so too end in a moment.
THREADED := $(filter-out $(addprefix test_,append_capture archive cuda_lanes cuda_runs cuda_scores \
    cuda_work invoke_latent invoke_latent_parts invoke_packed latent_runs overlap packed_runs \
    places runner_attention runner_kernels),$(notdir $(patsubst %.c,%,$(shell grep -slE \
    'engine/|ffi/|fig_engine_|pthread' $(SOURCES)))))
binaries = $(addprefix build/$(1)/tests/,$(filter $(if $(filter tsan,$(1)),$(THREADED),%),$(TESTS)))
# Functions that tests/support/fault.c can make fail. A name without a wrapper there does not link.
GATES := malloc calloc realloc aligned_alloc posix_memalign strdup open openat read write pread \
    pwrite lseek fstat fsync fchmod ftruncate flock close linkat rename renameat unlink unlinkat \
    getrandom mkstemp mmap fopen fdopen fread fwrite fflush fclose __read_chk __pread_chk __open_2 \
    __openat_2 __fread_chk pthread_create pthread_mutex_init pthread_cond_init hwloc_alloc \
    hwloc_bitmap_alloc $(addprefix hwloc_topology_,init load set_components)
# Scripts that make environments, compile much or start many processes.
SLOW := $(foreach name,docs jax python setup serve_ranks strangers transformers,$(filter \
    %/test_$(name).sh,$(SCRIPTS)))
# One job more than there are cores, because some tests wait.
TEST_JOBS = $(shell expr $(JOBS) + 1)
# Packages must be installed before make looks for them, so setup runs make a second time.
SUBMAKE = $(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))
VERSION = $(shell awk '$$2 == "FIG_VERSION" { v = $$3; \
    print int(v / 10000) "." int(v / 100) % 100 "." v % 100 }' include/figraph.h)
MAN := $(OUT)/man
SHARE = $(DESTDIR)$(PREFIX)/share
# Fills in the version and the installation paths, in files that are installed.
FILL = sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|'

# ---- Rules ---------------------------------------------------------------------------------------
.PHONY: all binaries built check clean demo format fuzz help install man report setup suite test \
    test-damage test-gpu test-grid test-transformers tidy uninstall wheel
.DELETE_ON_ERROR .SECONDEXPANSION:

all: $(addprefix $(OUT)/,libfigraph.a libfigraph.so libfigraph_ffi.so libfigraph_kernels.so \
    libfigraph_python.so figraph figraph-launch layers) ## all but tests
	@echo "made $^ with $(SAY_IMAGES)"

# A test computes the float64 truth on its own thread, from arrays that nobody else writes then, so
# tsan has nothing to find there, and would take half of the time.
$(BUILD)/tools/figraph/truth/%.o: CFLAGS_ALL += $(FLAGS_$(VARIANT)_truth)
$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(@D) && echo "cc   $@"
	@$(CC) $(CFLAGS_ALL) -MMD -MP -c $< -o $@
$(FATBINS): build/kernels/%.fatbin: $$(wildcard kernels/*/$$(basename $$*).cu) Makefile
	@mkdir -p $(@D) && echo "nvcc $@"
	@$(NVCC) $(NVCCFLAGS) $(or $(CHIPS.$*),$(CHIPS$(suffix $*))) -MMD -MP -MF $(@:fatbin=d) $< \
	    -o $@ > $(@:fatbin=log) 2>&1 || { cat $(@:fatbin=log); exit 1; }
	@! grep -E 'C75(11|12|14|20)' $(@:fatbin=log) # the products of warpgroups one after another
$(FATBINS:fatbin=sha256): %.sha256: %.fatbin
	@sha256sum < $< | cut -c 1-64 | sed -e 's/../0x&,/g' -e 's/,$$//' -e 's/^/.byte /' > $@
$(TEMPLATES:.zst=): build/kernels/%.ptx: $$(wildcard kernels/*/$$(basename $$*).cu) Makefile
	@mkdir -p $(@D) && echo "nvcc $@"
	@$(NVCC) $(filter-out -fatbin,$(NVCCFLAGS)) $(PTX$(suffix $*)) -MMD -MP -MF $(@:ptx=d) $< -o $@
build/pack: tools/package/pack.c Makefile
	@mkdir -p $(@D) && echo "cc   $@"
	@$(CC) -std=c11 -O2 $(WARNINGS) -Wno-missing-prototypes $< -o $@ -lzstd
$(TEMPLATES): %.zst: % build/pack
	@build/pack < $< > $@
$(TEMPLATES:ptx.zst=sha256): %.sha256: %.ptx.zst
	@sha256sum < $< | cut -c 1-64 | sed -e 's/../0x&,/g' -e 's/,$$//' -e 's/^/.byte /' > $@
$(IMAGES): kernels/table/images.S kernels/table/operations.h $(FATBINS) $(TEMPLATES) $(HASHES) \
    Makefile
	@mkdir -p $(@D) && rm -f $(@D)/images.*.o && echo "cc   $@"
	@$(CC) $(if $(NVCC),-DFIG_IMAGES) -iquote . -c $< -o $@
# The library comes before libfigraph.a in a link, so no images are taken from the archive.
$(TEST_IMAGES): kernels/table/images.S $(IMAGES)
	@rm -f $(@D)/images.*.so && echo "link $@" && $(CC) $(if $(NVCC),-DFIG_IMAGES) \
	    -DFIG_IMAGES_VISIBLE -iquote . -shared -nostdlib -Wl,-soname,$(@F) $< -o $@
$(FEW): examples/blas_few.cu Makefile
	@mkdir -p $(@D) && echo "nvcc $@"
	@$(NVCC) $(NVCCFLAGS) $(CHIPS.hopper) -MMD -MP -MF $(@:fatbin=d) $< -o $@
$(FEW_IMAGE): examples/blas_few.S $(if $(NVCC),$(FEW)) Makefile
	@mkdir -p $(@D) && rm -f $(@D)/blas_few.*.o && echo "cc   $@"
	@$(CC) $(if $(NVCC),-DFEW_IMAGE='"$(FEW)"') -c $< -o $@
$(OUT)/libfigraph.a: $(LIBRARY)
	@rm -f $@ && echo "ar   $@" && ar rcs $@ $^
# The library of kernels, which both shared libraries use. Its name identifies its contents, so that
# two builds in one process each load their own. Captured graphs may outlive a library, so it is
# never unloaded.
$(OUT)/libfigraph_kernels.so: $(KERNELS)
	@name=libfigraph_kernels-$$(cat $(IMAGES) kernels/table/images.c | sha256sum | cut -c 1-8).so && \
	    $(LINK) -shared -Wl,-soname,$$name -Wl,-z,defs -Wl,-z,nodelete && \
	    rm -f $(@D)/libfigraph_kernels-*.so && ln -s $(@F) $(@D)/$$name
$(OUT)/libfigraph.so: $(filter-out $(KERNELS),$(LIBRARY)) $(OUT)/libfigraph_kernels.so $(DEPS) \
    tools/package/libfigraph.map
	@$(LINK) -shared -Wl,-soname,libfigraph.so.0 -Wl,-z,defs -Wl,--exclude-libs,ALL \
	    -Wl,--version-script=tools/package/libfigraph.map $(BESIDE) $(LIBS)
	@ln -sf libfigraph.so $@.0
$(BUILD)/libfigraph_ffi.a: $(FFI)
	@rm -f $@ && echo "ar   $@" && ar rcs $@ $^
# This library must work on systems where nothing is installed: zstd is linked in, and -z defs
# reports any other missing symbol. The library of kernels comes first, so that no kernel is taken
# from the archive.
$(OUT)/libfigraph_ffi.so: $(FFI) $(OUT)/libfigraph.a $(OUT)/libfigraph_kernels.so $(DEPS)
	@echo "link $@" && $(CC) $(FLAGS_$(VARIANT)) -pthread $(LDFLAGS) $(FFI) $(BESIDE) \
	    $(filter %.a,$^) -o $@ -shared -Wl,-soname,libfigraph_ffi.so.0 -Wl,-z,defs \
	    -Wl,-z,nodelete -Wl,--gc-sections -Wl,--exclude-libs,ALL -l:libzstd.a -lm -lpthread
# Its undefined symbols are Python's, which the process that loads this library defines.
$(OUT)/libfigraph_python.so: $(call objects,python/*.c)
	@$(LINK) -shared -Wl,-soname,libfigraph_python.so.0
$(OUT)/figraph: $(call objects,tools/figraph/*.c tools/figraph/*/*.c)
$(OUT)/figraph-launch: $(call objects,tools/launch/*.c) $(DEPS)
	@$(LINK) -lhwloc
$(OUT)/layers: $(call objects,examples/*.c) $(FEW_IMAGE)
$(BUILD)/grid: $(GRID) $(filter $(addprefix %/,inspect_names.o truth.o truth_attention.o place.o \
    kept_kernels.o),$(SUPPORT))
$(OUT)/figraph $(OUT)/layers $(BUILD)/grid: $(OUT)/libfigraph.a $(DEPS)
	@$(LINK) $(LIBS)
# The files of a wheel, without debug information. One library holds the kernels, and the others
# find it in their own folder.
WHEEL := $(BUILD)/wheel
$(WHEEL)/lib%.so.0: $(OUT)/lib%.so
	@mkdir -p $(@D) && strip --strip-unneeded $< -o $@
$(WHEEL)/figraph-launch: $(OUT)/figraph-launch
	@mkdir -p $(@D) && strip --strip-unneeded $< -o $@
$(WHEEL)/figraph: $(call objects,tools/figraph/*.c tools/figraph/*/*.c) $(WHEEL)/libfigraph.so.0
	@$(LINK) -s $(WHEEL)/libfigraph.so.0 -Wl,-rpath,'$$ORIGIN' -Wl,-rpath-link,$(OUT) -ljansson -lm
built: $(addprefix $(WHEEL)/,libfigraph.so.0 libfigraph_ffi.so.0 libfigraph_kernels.so.0 \
    libfigraph_python.so.0 figraph figraph-launch)
$(TESTS:%=$(BUILD)/tests/%): $(BUILD)/tests/%: \
    $$(addprefix $(BUILD)/,$$(addsuffix .o,$$(basename $$(wildcard tests/*/$$*.c tests/*/*/$$*.c))))
$(GPU_TESTS): %: %.o
$(TESTS:%=$(BUILD)/tests/%) $(GPU_TESTS): LDFLAGS += $(WITH_IMAGES)
$(TESTS:%=$(BUILD)/tests/%) $(GPU_TESTS): $(SUPPORT) $(TEST_IMAGES) $(BUILD)/libfigraph_ffi.a \
    $(OUT)/libfigraph.a $(DEPS)
	@$(LINK) $(GATES:%=-Wl,--wrap=%) -lcmocka $(LIBS)
# For some hundreds of programs, LLVM's linker takes a third of the time of GNU's.
$(TESTS:%=$(BUILD)/tests/%): LDFLAGS += $(if $(shell command -v ld.lld),-fuse-ld=lld)
# For <cuda.h>.
$(BUILD)/tests/engine/driver/test_cuda_api.o: CPPFLAGS += $(NVCC:%/bin/nvcc=-isystem %/include)
# These tests run some of the grid; build/grid runs all of it.
$(BUILD)/tests/test_grid $(BUILD)/tests/test_ledger: $(filter-out %/grid.o,$(GRID))
$(BUILD)/tests/test_fuzz: $(FUZZ)
# libFuzzer calls one entry point of each program, and measures the coverage of the library that is
# linked into the program.
$(FUZZERS:%=$(BUILD)/fuzz_%): $(BUILD)/fuzz_%: $(BUILD)/libfuzzer_%.o $(FUZZ) $(filter \
    %/forgery.o %/stranger.o %/synthetic.o %/serve_trace.o,$(SUPPORT)) $(OUT)/libfigraph.a \
    $(filter $(BUILD)/tools/figraph/terminal/% $(BUILD)/tools/figraph/inspect/%,$(SUPPORT)) $(DEPS)
	@$(LINK) -fsanitize=fuzzer $(LIBS)
$(BUILD)/libfuzzer_%.o: tests/fuzz/libfuzzer.c Makefile
	@mkdir -p $(@D) && echo "cc   $@" && $(CC) $(CFLAGS_ALL) -DFUZZ=fig_fuzz_$* -c $< -o $@
# These tests define functions that the library looks up in the process.
$(foreach test,test_tvm_call test_tvm_entries,$(BUILD)/tests/$(test)): LDFLAGS += -rdynamic
# A test of families puts its own table in front of the library's.
$(foreach test,test_families test_cuda_maps,$(BUILD)/tests/$(test)): LDFLAGS += \
    -Wl,--wrap=fig_table_families
$(MAN): tools/package/man.sh $(OUT)/figraph $(OUT)/figraph-launch
	@echo "man  $@" && tools/package/man.sh $(OUT)/figraph $(OUT)/figraph-launch $@
binaries: $(call binaries,$(VARIANT))

# ---- Targets -------------------------------------------------------------------------------------
setup: ## install the compiler and libraries that are missing (Debian, Ubuntu)
	@tools/setup.sh
test: ## tidy; all tests with gcc; with clang under asan and ubsan; those with threads under tsan
	@tools/setup.sh --test
	@$(SUBMAKE) VARIANT=release all binaries $(GPU_TESTS)
	@$(SUBMAKE) VARIANT=asan binaries
	@$(SUBMAKE) VARIANT=tsan binaries
	@BUILD=build CC="$(CC)" CXX="$(CXX)" NVCC=$(NVCC) tests/run -j$(TEST_JOBS) tests/tidy \
	    $(SCRIPTS) $(foreach v,tsan asan release,$(call binaries,$(v)))
check: ## before a commit: tidy, the tests with gcc, and all but the slow scripts
	@$(SUBMAKE) VARIANT=release all binaries $(filter %_bench,$(GPU_TESTS))
	@echo "left to make test: other compilers and sanitizers, $(SLOW)"
	@BUILD=build CC="$(CC)" CXX="$(CXX)" NVCC=$(NVCC) tests/run -j$(TEST_JOBS) tests/tidy \
	    $(filter-out $(SLOW),$(SCRIPTS)) $(call binaries,release)
suite: binaries ## the tests of one VARIANT; TESTS="test_ring test_plan" runs only those
	@tests/run -j$(TEST_JOBS) $(call binaries,$(VARIANT))
test-gpu: ## the tests on this machine's GPU; MINUTES=25; TOOL=memcheck or the like
	@tests/gpu/run --find
	@tools/setup.sh
	@$(SUBMAKE) all binaries $(BUILD)/grid $(GPU_TESTS)
	@BUILD=$(BUILD) JOBS=$(JOBS) TOOL=$(TOOL) tests/gpu/run $(MINUTES:%=--minutes %)
test-transformers: ## tests figraph in transformers; TORCH_PYTHON is a Python that has both
	@$(SUBMAKE) all
	@BUILD=$(OUT) TEST_SKIPS=fail tests/run tests/transformers/test_transformers.sh
test-grid: setup ## every shape of tests/grid; takes hours, resumes; GRID_OPTIONS="--restart"
	@$(SUBMAKE) $(BUILD)/grid && $(BUILD)/grid --jobs $(JOBS) $(GRID_OPTIONS)
test-damage: setup ## changes each byte of the golden files to any other value, under asan; hours
	@$(SUBMAKE) VARIANT=asan build/asan/tests/test_golden_damage
	@tests/damage $(JOBS)
fuzz: ## every fuzzer for SECONDS=600, with clang; useful inputs are kept in build/fuzz
	@tools/setup.sh --test
	@$(SUBMAKE) VARIANT=fuzz $(FUZZERS:%=build/fuzz/fuzz_%)
	@tests/fuzz/run $(or $(SECONDS),600) $(FUZZERS)
demo: setup ## capture, save, restore and replay four models' steps, and compare every number
	@$(SUBMAKE) all
	@tools/demo.sh $(OUT)/figraph
report: ## the report: build/report.html, and the figures in README and docs/
	@tools/report/report.py
tidy: ## check the layering, lengths and names that CONTRIBUTING.md demands
	@tests/tidy
format: ## format every source by .clang-format
	clang-format -i $(wildcard kernels/*/*.cu* examples/*.cu $(addsuffix /*.[ch],examples include \
	    planner planner/* kernels/* graphs graphs/* engine engine/* ffi ffi/* tools/figraph \
	    tools/figraph/* tools/launch tests/* tests/*/*))
man: $(MAN) ## the manual pages of figraph and figraph-launch, from their help texts
install: all $(MAN) ## install libraries, headers and programs under $(DESTDIR)$(PREFIX)
	install -d $(addprefix $(DESTDIR),$(PREFIX)/bin $(PREFIX)/include $(LIBDIR)/pkgconfig \
	    $(LIBDIR)/cmake/figraph) $(SHARE)/man/man1 $(SHARE)/bash-completion/completions
	install -m 644 include/*.h $(DESTDIR)$(PREFIX)/include
	install -m 644 $(OUT)/libfigraph.a $(DESTDIR)$(LIBDIR)/libfigraph.a
	install -m 755 $(OUT)/libfigraph.so $(DESTDIR)$(LIBDIR)/libfigraph.so.$(VERSION)
	ln -sf libfigraph.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libfigraph.so.0
	ln -sf libfigraph.so.0 $(DESTDIR)$(LIBDIR)/libfigraph.so
	install -m 755 $(OUT)/libfigraph_ffi.so $(OUT)/libfigraph_kernels-*.so $(DESTDIR)$(LIBDIR)
	for name in figraph figraph-static; do $(FILL) tools/package/$$name.pc.in \
	    > $(DESTDIR)$(LIBDIR)/pkgconfig/$$name.pc; done
	for name in figraphConfig figraphConfigVersion; do $(FILL) tools/package/$$name.cmake.in \
	    > $(DESTDIR)$(LIBDIR)/cmake/figraph/$$name.cmake; done
	install -m 644 $(MAN)/*.1 $(SHARE)/man/man1
	for name in figraph figraph-launch; do install -m 644 tools/package/completion.bash \
	    $(SHARE)/bash-completion/completions/$$name; done
	install -m 755 $(OUT)/figraph $(OUT)/figraph-launch $(DESTDIR)$(PREFIX)/bin
	@DESTDIR=$(DESTDIR) tools/package/loader_cache.sh $(LIBDIR)
uninstall: ## remove the installed files
	rm -f $(addprefix $(DESTDIR),$(PREFIX)/bin/figraph $(PREFIX)/bin/figraph-launch \
	    $(patsubst %,$(PREFIX)/%,$(wildcard include/*.h)) \
	    $(LIBDIR)/pkgconfig/figraph.pc $(LIBDIR)/pkgconfig/figraph-static.pc \
	    $(LIBDIR)/libfigraph_kernels-*.so \
	    $(LIBDIR)/libfigraph_ffi.so $(foreach name,Config ConfigVersion, \
	    $(LIBDIR)/cmake/figraph/figraph$(name).cmake) $(foreach name,figraph figraph-launch, \
	    $(PREFIX)/share/man/man1/$(name).1 $(PREFIX)/share/bash-completion/completions/$(name)) \
	    $(addprefix $(LIBDIR)/libfigraph.,a so so.0 so.$(VERSION)))
wheel: built ## the Python package as a wheel and an sdist, in build/release/wheel
	@python3 python/backend.py wheel $(WHEEL) $(WHEEL) && python3 python/backend.py sdist $(WHEEL)
	@echo "made in $(WHEEL), with $(SAY_IMAGES)"
clean: ## remove build/
	rm -rf build
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-17s %s\n", $$1, $$2 }' Makefile
	@echo; echo "VARIANT is one of $(VARIANTS); it is $(VARIANT). JOBS is $(JOBS), PREFIX $(PREFIX)."
-include $(wildcard $(BUILD)/*/*.d $(BUILD)/*/*/*.d $(BUILD)/*/*/*/*.d build/kernels/*.d \
    build/examples/*.d)
