/* pci.c: reads the system's information about a PCI device.
 *
 * It reads only system files and needs no topology library. */
#include "engine/machine/pci.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

enum { PATH_LIMIT = 256 };

int32_t fig_pci_node(const char *system, const char *device) {
    char path[PATH_LIMIT], name[32], text[16] = "";
    snprintf(name, sizeof name, "%s", device);
    for (char *c = name; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
    snprintf(path, sizeof path, "%s/bus/pci/devices/%s/numa_node", system != NULL ? system : "/sys",
             name);
    FILE *file = fopen(path, "r");
    if (file == NULL) return -1;
    const size_t count = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    if (count == 0 || !isdigit((unsigned char)text[0])) return -1;
    return (int32_t)strtol(text, NULL, 10);
}
