/* test_pci.c: tests the NUMA nodes that are read for PCI devices, from a folder that stands in for
 * /sys. */
#include "engine/machine/pci.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void the_node_beside_a_pci_device_is_read_from_the_system(void **state) {
    static const struct {
        const char *name, *text;
        int32_t node;
    } devices[] = {{"0000:1b:00.0", "12\n", 12},
                   {"0000:1c:00.0", "-1\n", -1},
                   {"0000:1d:00.0", "", -1},
                   {"0000:1e:00.0", "none\n", -1}};
    (void)state;
    char system[] = "/tmp/test_pci.XXXXXX", path[128];
    assert_non_null(mkdtemp(system));
    const char *const folders[] = {"/bus", "/bus/pci", "/bus/pci/devices"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", system, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/bus/pci/devices/%s", system, devices[i].name);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path, sizeof path, "%s/bus/pci/devices/%s/numa_node", system, devices[i].name);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(devices[i].text, file);
        fclose(file);
        assert_int_equal(fig_pci_node(system, devices[i].name), devices[i].node);
        if (i == 0) assert_int_equal(fig_pci_node(system, "0000:1B:00.0"), 12);
        assert_int_equal(remove(path), 0);
        *strrchr(path, '/') = '\0';
        assert_int_equal(rmdir(path), 0);
    }
    for (int i = 2; i >= 0; i--) {
        snprintf(path, sizeof path, "%s%s", system, folders[i]);
        assert_int_equal(rmdir(path), 0);
    }
    assert_int_equal(rmdir(system), 0);
}

static void an_unknown_device_has_no_node(void **state) {
    (void)state;
    assert_int_equal(fig_pci_node(NULL, "no such device"), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_node_beside_a_pci_device_is_read_from_the_system),
        cmocka_unit_test(an_unknown_device_has_no_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
