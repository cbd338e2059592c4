/* hopper_steps.hpp: runs random steps of a kernel on a CPU, for programs that compare what its
 * blocks leave with what the reference kernel leaves.
 *
 * Owns the order of blocks, which is mostly random, the loop over seeds, and arrays behind which no
 * byte can be read. A program includes this file after hopper.hpp. Invariant: a seed always gives the
 * same step in the same order. */
#ifndef FIG_TESTS_SUPPORT_HOPPER_STEPS_HPP
#define FIG_TESTS_SUPPORT_HOPPER_STEPS_HPP

#include <algorithm>
#include <cstdlib>
#include <sys/mman.h>

/* Allocates memory that ends where a page ends. An access past it ends the program. */
template <class T> struct steps_allocator {
    enum { PAGE = 4096 };
    typedef T value_type;
    steps_allocator() = default;
    template <class U> steps_allocator(const steps_allocator<U> &) {
    }
    static size_t room(size_t count) {
        return (count * sizeof(T) + PAGE - 1) / PAGE * PAGE;
    }
    T *allocate(size_t count) {
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
        void *at = mmap(NULL, room(count) + PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (at == MAP_FAILED) abort();
        mprotect((uint8_t *)at + room(count), PAGE, PROT_NONE);
        return (T *)((uint8_t *)at + room(count) - count * sizeof(T));
    }
    void deallocate(T *from, size_t count) {
        munmap((uint8_t *)(from + count) - room(count), room(count) + PAGE);
    }
    bool operator==(const steps_allocator &) const {
        return true;
    }
    bool operator!=(const steps_allocator &) const {
        return false;
    }
};
template <class T> using steps_array = std::vector<T, steps_allocator<T>>;

/* Returns 1 if the block runs behind those of which it returns 0. NULL: the order is random. */
static int (*steps_is_late)(const void *params, uint32_t block);

/* Runs a launch of `blocks` blocks, by the emulated kernel or, if it is NULL, by its reference
 * kernel. Returns NULL, or what the kernel did wrong. */
static const char *steps_launch(void (*kernel)(const void *),
                                void (*reference)(const void *, const uint32_t[3]),
                                const void *params, int32_t blocks, fig_random *random) {
    std::vector<uint32_t> order;
    for (int32_t block = 0; block < blocks; block++)
        order.insert(order.begin() + fig_random_range(random, 0, block), (uint32_t)block);
    if (steps_is_late != NULL)
        std::stable_partition(order.begin(), order.end(),
                              [params](uint32_t block) { return !steps_is_late(params, block); });
    for (uint32_t block : order) {
        const uint32_t at[3] = {block, 0, 0};
        const char *wrong = NULL;
        if (kernel == NULL)
            reference(params, at);
        else
            wrong = hopper_run(kernel, params, block, fig_random_bits(random));
        if (wrong != NULL) return wrong;
    }
    return NULL;
}

template <class array> static int steps_are_zeros(const array &numbers) {
    for (auto x : numbers)
        if (x != 0) return 0;
    return 1;
}

/* The options of a program are the first seed and the number of seeds. try_case() returns 0, and
 * says why, if a kernel did something wrong. Returns the exit code. */
static int steps_try(int argc, char **argv, int (*try_case)(uint64_t seed)) {
    const uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const uint64_t cases = argc > 2 ? strtoull(argv[2], NULL, 10) : 10;
    for (uint64_t seed = first; seed < first + cases; seed++)
        if (!try_case(seed)) return 1;
    printf("%llu steps are the twin's\n", (unsigned long long)cases);
    return 0;
}

#endif
