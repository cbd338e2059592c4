#!/bin/sh
# loader_cache.sh: makes the system's loader find the library after make install.
#
# Runs ldconfig. If ldconfig is not permitted or does not help, prints one line that tells the user
# what to do. Invariant: never fails, because the files are installed.
#
# Usage: tools/package/loader_cache.sh LIBDIR
#   LDCONFIG names another ldconfig; DESTDIR: a staged install
folder=$1
PATH=$PATH:/usr/sbin:/sbin
ldconfig=${LDCONFIG:-ldconfig}

left() {
    echo "libfigraph.so.0 is in $folder, and the loader does not know it yet: $1"
    exit 0
}

[ -z "${DESTDIR:-}" ] || exit 0 # the installation of the package will run ldconfig
command -v "$ldconfig" > /dev/null || exit 0 # a system without ldconfig has no cache
"$ldconfig" 2> /dev/null || left 'run ldconfig as root, or set LD_LIBRARY_PATH'
"$ldconfig" -p 2> /dev/null | grep -qF "=> $folder/libfigraph.so.0" ||
    left 'its folder is none of /etc/ld.so.conf; add it there, or set LD_LIBRARY_PATH'
