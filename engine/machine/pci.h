/* pci.h: what the system tells of a PCI device. */
#ifndef FIG_ENGINE_PCI_H
#define FIG_ENGINE_PCI_H

#include <stdint.h>

/* The node beside a PCI device, "0000:1b:00.0"; -1: the system does not tell. system: where it
 * tells of itself; NULL: "/sys". */
int32_t fig_pci_node(const char *system, const char *device);

#endif
