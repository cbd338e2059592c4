/* environment.c: reads the variables that launchers set, and fills in missing values.
 *
 * A table has one row for each launcher. Invariant: see environment.h. If a variable has an invalid
 * value, the call fails and the message names the variable. If only some of a launcher's variables
 * are set, this file does not guess the others. */
#include "engine/ranks/environment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/view/hash.h"
#include "planner/status.h"

enum { TIMEOUT_DEFAULT_US = 60000000, TIMEOUT_LIMIT_MS = 86400000, PORT_LIMIT = 65535 };

typedef const char *(*look_function)(const char *name);

/* The names of the variables that a launcher sets; NULL: it sets no such variable. */
typedef struct launcher {
    const char *rank, *count, *local_rank;
    const char *local_count; /* the number of ranks on this host */
    const char *host_count;  /* the number of hosts of the job */
    const char *hosts;       /* the names of the hosts, "node[03-17],login" */
    const char *job;
} launcher;

static const launcher launchers[] = {
    {.rank = "RANK",
     .count = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .local_count = "LOCAL_WORLD_SIZE",
     .job = "TORCHELASTIC_RUN_ID"},
    {.rank = "OMPI_COMM_WORLD_RANK",
     .count = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_count = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .job = "PMIX_NAMESPACE"},
    {.rank = "SLURM_PROCID",
     .count = "SLURM_STEP_NUM_TASKS",
     .local_rank = "SLURM_LOCALID",
     .host_count = "SLURM_STEP_NUM_NODES",
     .hosts = "SLURM_STEP_NODELIST",
     .job = "SLURM_JOB_ID"},
};

static const char *look_up(const char *name) {
    return getenv(name);
}

/* Returns the value of a variable. An empty variable counts as not set. */
static const char *find(look_function look, const char *name) {
    const char *value = name == NULL ? NULL : look(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Reads a variable as a number. Leaves *out unchanged if the variable is not set. */
static fig_status read_number(look_function look, const char *name, int32_t limit, int32_t *out) {
    const char *value = find(look, name);
    int64_t number = 0;
    if (value == NULL) return FIG_OK;
    for (const char *at = value; *at != '\0'; at++) {
        if (*at >= '0' && *at <= '9') number = number * 10 + (*at - '0');
        if (*at < '0' || *at > '9' || number > limit)
            return fig_fail(FIG_INVALID,
                            "ranks: %s is \"%.40s\", it is a number from 0 to %" PRId32, name,
                            value, limit);
    }
    *out = (int32_t)number;
    return FIG_OK;
}

static fig_status copy_text(char out[FIG_ENVIRONMENT_TEXT_LIMIT], const char *text,
                            const char *name) {
    const size_t length = strlen(text);
    if (length >= FIG_ENVIRONMENT_TEXT_LIMIT)
        return fig_fail(FIG_INVALID, "ranks: %s has %zu characters, limit %d", name, length,
                        FIG_ENVIRONMENT_TEXT_LIMIT - 1);
    memcpy(out, text, length + 1);
    return FIG_OK;
}

/* ---- Rank and size ------------------------------------------------------------------------- */

/* Sets *found to the launcher whose variables are set, or to NULL if no launcher's are. */
static fig_status find_launcher(look_function look, const launcher **found) {
    *found = NULL;
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0] && *found == NULL; i++) {
        const launcher *each = &launchers[i];
        if (find(look, each->rank) != NULL && find(look, each->count) != NULL) *found = each;
    }
    /* If only one of RANK and WORLD_SIZE is set, the process was meant to be part of a job; without
     * this check it would run as a single rank. */
    const char *rank = launchers[0].rank, *count = launchers[0].count;
    if (*found == NULL && (find(look, rank) != NULL || find(look, count) != NULL))
        return fig_fail(FIG_INVALID, "ranks: %s is set and %s is not",
                        find(look, rank) != NULL ? rank : count,
                        find(look, rank) != NULL ? count : rank);
    return FIG_OK;
}

static fig_status check_rank(const fig_environment *environment) {
    if (environment->count < 1 || environment->count > FIG_RANKS_LIMIT)
        return fig_fail(FIG_INVALID, "ranks: count is %" PRId32 ", limits 1 to %d",
                        environment->count, FIG_RANKS_LIMIT);
    if (environment->rank < 0 || environment->rank >= environment->count)
        return fig_fail(FIG_INVALID,
                        "ranks: this is rank %" PRId32 " of %" PRId32 ", ranks count from 0",
                        environment->rank, environment->count);
    if (environment->local_rank < 0 || environment->local_rank >= environment->count)
        return fig_fail(FIG_INVALID,
                        "ranks: rank %" PRId32 " of %" PRId32 " has local_rank %" PRId32
                        ", limit count - 1",
                        environment->rank, environment->count, environment->local_rank);
    return FIG_OK;
}

static fig_status read_launcher(fig_environment *environment, const launcher *from,
                                look_function look) {
    int32_t local_count = 0, host_count = 0;
    FIG_TRY(read_number(look, from->count, INT32_MAX, &environment->count));
    FIG_TRY(read_number(look, from->rank, INT32_MAX, &environment->rank));
    FIG_TRY(read_number(look, from->local_rank, INT32_MAX, &environment->local_rank));
    FIG_TRY(read_number(look, from->local_count, INT32_MAX, &local_count));
    FIG_TRY(read_number(look, from->host_count, INT32_MAX, &host_count));
    environment->one_host = local_count == environment->count || host_count == 1;
    return FIG_OK;
}

static fig_status take_fields(fig_environment *environment, const fig_ranks_options *options) {
    environment->count = options->count;
    environment->rank = options->rank;
    environment->local_rank = options->local_rank;
    environment->one_host = options->address == NULL;
    return FIG_OK;
}

/* ---- Where --------------------------------------------------------------------------------- */

/* Writes the name of the first host: "node03" for "node[03-17],login". */
static fig_status first_host(char out[FIG_ENVIRONMENT_TEXT_LIMIT], const char *hosts,
                             const char *name) {
    const size_t head = strcspn(hosts, "[,");
    const char *number = hosts + head + (hosts[head] == '[');
    const size_t digits = hosts[head] == '[' ? strcspn(number, "-,]") : 0;
    if (head + digits == 0 || head + digits >= FIG_ENVIRONMENT_TEXT_LIMIT)
        return fig_fail(FIG_INVALID, "ranks: %s is \"%.80s\", no list of hosts", name, hosts);
    memcpy(out, hosts, head);
    memcpy(out + head, number, digits);
    out[head + digits] = '\0';
    return FIG_OK;
}

static int is_loopback(const char *address) {
    return strcmp(address, "localhost") == 0 || strcmp(address, "::1") == 0 ||
           strncmp(address, "127.", 4) == 0;
}

static fig_status find_address(fig_environment *environment, const fig_ranks_options *options,
                               const launcher *from, look_function look) {
    const char *given = options->address != NULL ? options->address : find(look, "MASTER_ADDR");
    const char *hosts = from == NULL ? NULL : find(look, from->hosts);
    if (given != NULL && is_loopback(given)) environment->one_host = 1;
    if (environment->one_host) given = "127.0.0.1";
    if (given != NULL) return copy_text(environment->address, given, "MASTER_ADDR");
    if (hosts != NULL) return first_host(environment->address, hosts, from->hosts);
    return fig_fail(FIG_INVALID, "ranks: MASTER_ADDR is not set, and nothing else says where rank "
                                 "0 is");
}

/* Writes a name that distinguishes the job from others on the same host, or "" if no variable names
 * the job. */
static void name_job(char job[FIG_ENVIRONMENT_TEXT_LIMIT], const launcher *from,
                     look_function look) {
    const char *name = from == NULL ? NULL : find(look, from->job);
    const char *port = find(look, "MASTER_PORT");
    job[0] = '\0';
    if (name == NULL && port == NULL) return;
    snprintf(job, FIG_ENVIRONMENT_TEXT_LIMIT, "%s %s", name == NULL ? "" : name,
             port == NULL ? "" : port);
}

static fig_status find_port(fig_environment *environment, const fig_ranks_options *options,
                            const char *job, look_function look) {
    int32_t master = 0;
    environment->port = options->port;
    if (options->port < 0 || options->port > PORT_LIMIT)
        return fig_fail(FIG_INVALID, "ranks: port is %" PRId32 ", limits 0 to %d", options->port,
                        PORT_LIMIT);
    if (environment->port == 0)
        FIG_TRY(read_number(look, "FIG_PORT", PORT_LIMIT, &environment->port));
    if (environment->port != 0) return FIG_OK;
    FIG_TRY(read_number(look, "MASTER_PORT", PORT_LIMIT - 1, &master));
    if (master > 0)
        environment->port = master + 1;
    else if (job[0] != '\0')
        environment->port = FIG_ENVIRONMENT_JOB_PORT + (int32_t)(fig_hash_mix(0, job, strlen(job)) %
                                                                 FIG_ENVIRONMENT_JOB_PORTS);
    if (environment->port != 0) return FIG_OK;
    return fig_fail(FIG_INVALID, "ranks: neither FIG_PORT nor MASTER_PORT is set, and nothing else "
                                 "says where rank 0 listens");
}

static fig_status find_secret(fig_environment *environment, const fig_ranks_options *options,
                              const char *job, look_function look) {
    const char *given = options->secret != NULL ? options->secret : find(look, "FIG_SECRET");
    if (given == NULL && !environment->one_host)
        return fig_fail(FIG_INVALID, "ranks: FIG_SECRET is not set, and ranks on more than one "
                                     "host need one that all know");
    environment->own_user = given == NULL;
    return copy_text(environment->secret, given == NULL ? job : given, "FIG_SECRET");
}

fig_status fig_environment_read(fig_environment *environment, const fig_ranks_options *options,
                                const char *(*look)(const char *name)) {
    const launcher *from = NULL;
    char job[FIG_ENVIRONMENT_TEXT_LIMIT];
    *environment = (fig_environment){.count = 1};
    if (look == NULL) look = look_up;
    if (options->reserved != 0)
        return fig_fail(FIG_INVALID, "ranks: reserved is %" PRId32 ", it must be 0",
                        options->reserved);
    if (options->count == 0 && (options->rank != 0 || options->local_rank != 0))
        return fig_fail(FIG_INVALID, "ranks: rank or local_rank is given, and count is 0");
    FIG_TRY(fig_environment_read_timeout(&environment->timeout_us, options, look));
    if (options->count != 0) {
        FIG_TRY(take_fields(environment, options));
    } else {
        FIG_TRY(find_launcher(look, &from));
        if (from != NULL) FIG_TRY(read_launcher(environment, from, look));
    }
    FIG_TRY(check_rank(environment));
    if (environment->count == 1) return FIG_OK;
    name_job(job, from, look);
    FIG_TRY(find_address(environment, options, from, look));
    FIG_TRY(find_port(environment, options, job, look));
    return find_secret(environment, options, job, look);
}

fig_status fig_environment_read_timeout(int64_t *timeout_us, const fig_ranks_options *options,
                                        const char *(*look)(const char *name)) {
    int32_t ms = 0;
    *timeout_us = options->timeout_us;
    if (options->timeout_us < 0 || options->timeout_us / 1000 > TIMEOUT_LIMIT_MS)
        return fig_fail(FIG_INVALID, "ranks: timeout_us is %" PRId64 ", limits 0 to %d000",
                        options->timeout_us, TIMEOUT_LIMIT_MS);
    if (*timeout_us == 0) {
        FIG_TRY(
            read_number(look == NULL ? look_up : look, "FIG_TIMEOUT_MS", TIMEOUT_LIMIT_MS, &ms));
        *timeout_us = (int64_t)ms * 1000;
    }
    if (*timeout_us == 0) *timeout_us = TIMEOUT_DEFAULT_US;
    return FIG_OK;
}
