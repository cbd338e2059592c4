/* pci.h: reads the system's information about a PCI device. */
#ifndef FIG_ENGINE_PCI_H
#define FIG_ENGINE_PCI_H

#include <stdint.h>

/* Returns the NUMA node beside a PCI device such as "0000:1b:00.0", or -1 if the system does not
 * report it. system: the root of the system's files; NULL: "/sys". */
int32_t fig_pci_node(const char *system, const char *device);

#endif
