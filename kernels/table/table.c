/* table.c: builds the kernel table, one row for each operation.
 *
 * The rows come from the list in operations.h and from rows.h. Invariant: an operation of the list
 * without a row does not compile. */
#include "kernels/table/table.h"

#include "kernels/table/attention_rows.h"
#include "kernels/table/latent_rows.h"
#include "kernels/table/rows.h"
#include "kernels/table/scored_rows.h"

#define FAMILY(OP, KIND, kind, file, PATHS) {.name = #kind, OP##_##KIND},
#define OPERATION(number, OP, name_, twin_, check, families_)                                      \
    [FIG_OP_##OP] = {.name = #name_,                                                               \
                     .params_bytes = sizeof(fig_##name_##_params),                                 \
                     .families = (const fig_family[]){families_},                                  \
                     .family_count = COUNT(((const fig_family[]){families_})),                     \
                     .reference = fig_##twin_##_reference,                                         \
                     OP##_ROW},
const fig_kernel fig_kernel_table[FIG_OP_KERNEL_COUNT] = {FIG_OPERATIONS(OPERATION, FAMILY)};

const fig_family *fig_table_families(fig_op op, uint32_t *count) {
    *count = fig_kernel_table[op].family_count;
    return fig_kernel_table[op].families;
}

const char *fig_table_op_name(uint32_t op) {
    if (op == FIG_OP_CALL) return "call";
    return op < FIG_OP_KERNEL_COUNT ? fig_kernel_table[op].name : NULL;
}
