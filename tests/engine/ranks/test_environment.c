/* test_environment.c: tests which rank and group are read from launchers' and callers'
 * variables. */
#include "engine/ranks/environment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* The environment: names and values alternate, NULL at the end. */
static const char *const *variables;

static const char *look(const char *name) {
    for (const char *const *at = variables; *at != NULL; at += 2)
        if (strcmp(at[0], name) == 0) return at[1];
    return NULL;
}

#define VARIABLES(...) ((const char *const[]){__VA_ARGS__, NULL})

static fig_status read_as(fig_environment *out, const char *const *given,
                          const fig_ranks_options *options) {
    static const fig_ranks_options none = {.size = sizeof none};
    variables = given;
    return fig_environment_read(out, options == NULL ? &none : options, look);
}

static void assert_refused(const char *const *given, const fig_ranks_options *options,
                           const char *words) {
    fig_environment is;
    assert_int_equal(read_as(&is, given, options), FIG_INVALID);
    if (strstr(fig_message(), words) == NULL) print_error("%s\n", fig_message());
    assert_non_null(strstr(fig_message(), words));
}

#define TORCHRUN                                                                                   \
    "RANK", "3", "WORLD_SIZE", "4", "LOCAL_RANK", "1", "LOCAL_WORLD_SIZE", "2", "MASTER_ADDR",     \
        "node7", "MASTER_PORT", "29500", "TORCHELASTIC_RUN_ID", "job"
#define OPEN_MPI                                                                                   \
    "OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_SIZE", "4", "OMPI_COMM_WORLD_LOCAL_RANK", "2",   \
        "OMPI_COMM_WORLD_LOCAL_SIZE", "4", "PMIX_NAMESPACE", "1234@1"
#define SLURM                                                                                      \
    "SLURM_PROCID", "5", "SLURM_STEP_NUM_TASKS", "8", "SLURM_LOCALID", "1",                        \
        "SLURM_STEP_NUM_NODES", "2", "SLURM_JOB_ID", "77"

static void a_process_that_nobody_launched_is_alone(void **state) {
    (void)state;
    fig_environment is;
    assert_int_equal(read_as(&is, VARIABLES("HOME", "/"), NULL), FIG_OK);
    assert_int_equal(is.count, 1);
    assert_int_equal(is.rank, 0);
    assert_int_equal(is.port, 0);
    assert_int_equal(is.timeout_us, 60000000);
}

static void torchrun_is_read(void **state) {
    (void)state;
    fig_environment is;
    assert_int_equal(read_as(&is, VARIABLES(TORCHRUN, "FIG_SECRET", "s"), NULL), FIG_OK);
    assert_int_equal(is.count, 4);
    assert_int_equal(is.rank, 3);
    assert_int_equal(is.local_rank, 1);
    /* one more than torchrun's own port, at which torchrun listens */
    assert_int_equal(is.port, 29501);
    assert_int_equal(is.one_host, 0);
    assert_string_equal(is.address, "node7");
    assert_string_equal(is.secret, "s");
    assert_int_equal(is.own_user, 0);
}

static void open_mpi_is_read_and_meets_on_its_host(void **state) {
    (void)state;
    fig_environment is, again, other;
    assert_int_equal(read_as(&is, VARIABLES(OPEN_MPI), NULL), FIG_OK);
    assert_int_equal(is.count, 4);
    assert_int_equal(is.rank, 2);
    assert_int_equal(is.local_rank, 2);
    assert_int_equal(is.one_host, 1);
    assert_int_equal(is.own_user, 1);
    assert_string_equal(is.address, "127.0.0.1");
    assert_in_range(is.port, FIG_ENVIRONMENT_JOB_PORT,
                    FIG_ENVIRONMENT_JOB_PORT + FIG_ENVIRONMENT_JOB_PORTS - 1);
    /* All ranks of a job get the same port and secret; another job gets a different port and
     * secret. */
    assert_int_equal(read_as(&again, VARIABLES("OMPI_COMM_WORLD_RANK", "0", OPEN_MPI), NULL),
                     FIG_OK);
    assert_int_equal(again.rank, 0);
    assert_int_equal(again.port, is.port);
    assert_string_equal(again.secret, is.secret);
    assert_int_equal(read_as(&other, VARIABLES("PMIX_NAMESPACE", "1235@1", OPEN_MPI), NULL),
                     FIG_OK);
    assert_int_not_equal(other.port, is.port);
    assert_string_not_equal(other.secret, is.secret);
}

static void slurm_is_read_and_its_first_node_found(void **state) {
    (void)state;
    static const char *const lists[][2] = {{"gpu[07-09,12]", "gpu07"},
                                           {"gpu7", "gpu7"},
                                           {"login,gpu[1-2]", "login"},
                                           {"gpu[3]", "gpu3"},
                                           {"rack2-gpu[11,14]", "rack2-gpu11"}};
    fig_environment is;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        assert_int_equal(
            read_as(&is, VARIABLES(SLURM, "SLURM_STEP_NODELIST", lists[i][0], "FIG_SECRET", "s"),
                    NULL),
            FIG_OK);
        assert_int_equal(is.rank, 5);
        assert_int_equal(is.count, 8);
        assert_int_equal(is.local_rank, 1);
        assert_int_equal(is.one_host, 0);
        assert_string_equal(is.address, lists[i][1]);
    }
    assert_int_equal(read_as(&is, VARIABLES("SLURM_STEP_NUM_NODES", "1", SLURM), NULL), FIG_OK);
    assert_string_equal(is.address, "127.0.0.1");
    assert_refused(VARIABLES(SLURM, "FIG_SECRET", "s", "SLURM_STEP_NODELIST", "[]"), NULL,
                   "no list of hosts");
}

static void torchrun_takes_precedence_over_slurm_and_mpi(void **state) {
    (void)state;
    fig_environment is;
    assert_int_equal(read_as(&is, VARIABLES(SLURM, OPEN_MPI, TORCHRUN, "FIG_SECRET", "s"), NULL),
                     FIG_OK);
    assert_int_equal(is.rank, 3);
    assert_int_equal(read_as(&is, VARIABLES(SLURM, OPEN_MPI), NULL), FIG_OK);
    assert_int_equal(is.rank, 2);
}

static void variables_of_figraph_override_those_of_launchers(void **state) {
    (void)state;
    fig_environment is;
    assert_int_equal(read_as(&is,
                             VARIABLES(TORCHRUN, "FIG_SECRET", "s", "FIG_PORT", "4000",
                                       "FIG_TIMEOUT_MS", "1500"),
                             NULL),
                     FIG_OK);
    assert_int_equal(is.port, 4000);
    assert_int_equal(is.timeout_us, 1500000);
}

static void fields_override_the_environment(void **state) {
    (void)state;
    fig_environment is;
    assert_int_equal(read_as(&is, VARIABLES(TORCHRUN, "FIG_SECRET", "s"),
                             FIG_OPTIONS(fig_ranks_options, .count = 2, .rank = 1, .port = 5000,
                                         .secret = "mine", .timeout_us = 7)),
                     FIG_OK);
    assert_int_equal(is.count, 2);
    assert_int_equal(is.rank, 1);
    assert_int_equal(is.port, 5000);
    assert_int_equal(is.timeout_us, 7);
    assert_string_equal(is.address, "127.0.0.1");
    assert_string_equal(is.secret, "mine");
    assert_int_equal(
        read_as(&is, VARIABLES("FIG_SECRET", "s"),
                FIG_OPTIONS(fig_ranks_options, .count = 2, .port = 5000, .address = "10.1.2.3")),
        FIG_OK);
    assert_string_equal(is.address, "10.1.2.3");
    assert_int_equal(is.one_host, 0);
}

static void ranks_on_several_hosts_need_a_secret(void **state) {
    (void)state;
    fig_environment is;
    assert_refused(VARIABLES(TORCHRUN), NULL, "FIG_SECRET is not set");
    assert_int_equal(read_as(&is, VARIABLES("LOCAL_WORLD_SIZE", "4", TORCHRUN), NULL), FIG_OK);
    assert_int_equal(is.own_user, 1);
    assert_int_equal(read_as(&is, VARIABLES("MASTER_ADDR", "localhost", TORCHRUN), NULL), FIG_OK);
    assert_int_equal(is.one_host, 1);
    assert_int_equal(is.own_user, 1);
    assert_int_equal(
        read_as(&is, VARIABLES("FIG_SECRET", "s", "LOCAL_WORLD_SIZE", "4", TORCHRUN), NULL),
        FIG_OK);
    assert_int_equal(is.one_host, 1);
    assert_int_equal(is.own_user, 0);
}

static void senseless_values_are_refused_by_name(void **state) {
    (void)state;
    assert_refused(VARIABLES("RANK", "1"), NULL, "RANK is set and WORLD_SIZE is not");
    assert_refused(VARIABLES("WORLD_SIZE", "2"), NULL, "WORLD_SIZE is set and RANK is not");
    assert_refused(VARIABLES("RANK", "one", TORCHRUN), NULL, "RANK is \"one\"");
    assert_refused(VARIABLES("RANK", "-1", TORCHRUN), NULL, "RANK is \"-1\"");
    assert_refused(VARIABLES("RANK", "4", TORCHRUN), NULL, "this is rank 4 of 4");
    assert_refused(VARIABLES("WORLD_SIZE", "99999999999999999999", TORCHRUN), NULL, "WORLD_SIZE");
    assert_refused(VARIABLES("WORLD_SIZE", "257", TORCHRUN), NULL, "count is 257");
    assert_refused(VARIABLES("WORLD_SIZE", "0", TORCHRUN), NULL, "count is 0");
    assert_refused(VARIABLES("LOCAL_RANK", "4", TORCHRUN), NULL, "local_rank 4");
    assert_refused(VARIABLES("FIG_PORT", "65536", "FIG_SECRET", "s", TORCHRUN), NULL,
                   "FIG_PORT is \"65536\", it is a number from 0 to 65535");
    assert_refused(VARIABLES("MASTER_PORT", "65535", "FIG_SECRET", "s", TORCHRUN), NULL,
                   "MASTER_PORT is \"65535\"");
    assert_refused(VARIABLES("FIG_TIMEOUT_MS", "1s", TORCHRUN), NULL, "FIG_TIMEOUT_MS");
    assert_refused(VARIABLES("RANK", "0", "WORLD_SIZE", "2", "FIG_SECRET", "s"), NULL,
                   "MASTER_ADDR is not set");
    assert_refused(VARIABLES("RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "::1"), NULL,
                   "neither FIG_PORT nor MASTER_PORT is set");
    assert_refused(VARIABLES(TORCHRUN), FIG_OPTIONS(fig_ranks_options, .rank = 1),
                   "rank or local_rank is given, and count is 0");
    assert_refused(VARIABLES(TORCHRUN), FIG_OPTIONS(fig_ranks_options, .count = 2, .rank = 2),
                   "this is rank 2 of 2");
    assert_refused(VARIABLES(TORCHRUN), FIG_OPTIONS(fig_ranks_options, .count = 2, .port = -1),
                   "port is -1");
    assert_refused(VARIABLES(TORCHRUN), FIG_OPTIONS(fig_ranks_options, .timeout_us = -1),
                   "timeout_us is -1");
    assert_refused(VARIABLES(TORCHRUN), FIG_OPTIONS(fig_ranks_options, .reserved = 1),
                   "reserved is 1");
}

static void a_secret_that_does_not_fit_is_refused(void **state) {
    (void)state;
    char longest[FIG_ENVIRONMENT_TEXT_LIMIT], longer[FIG_ENVIRONMENT_TEXT_LIMIT + 1];
    fig_environment is;
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(read_as(&is, VARIABLES(TORCHRUN, "FIG_SECRET", longest), NULL), FIG_OK);
    assert_refused(VARIABLES(TORCHRUN, "FIG_SECRET", longer), NULL,
                   "FIG_SECRET has 256 characters, limit 255");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_nobody_launched_is_alone),
        cmocka_unit_test(torchrun_is_read),
        cmocka_unit_test(open_mpi_is_read_and_meets_on_its_host),
        cmocka_unit_test(slurm_is_read_and_its_first_node_found),
        cmocka_unit_test(torchrun_takes_precedence_over_slurm_and_mpi),
        cmocka_unit_test(variables_of_figraph_override_those_of_launchers),
        cmocka_unit_test(fields_override_the_environment),
        cmocka_unit_test(ranks_on_several_hosts_need_a_secret),
        cmocka_unit_test(senseless_values_are_refused_by_name),
        cmocka_unit_test(a_secret_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
