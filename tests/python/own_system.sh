#!/bin/sh
# own_system.sh: makes an empty system from the packages that are installed here: a shell, the C
# library and Python, with everything that they depend on.
#
# empty_system.sh can use the result if debootstrap can reach no mirror. Run it as root. Invariant:
# every file in the new system belongs to a package, except the lists of users and groups.
#
#     tests/python/own_system.sh ROOT
set -eu
system=$1
rm -rf "$system"
mkdir -p "$system/etc" "$system/dev" "$system/proc" "$system/root"
mkdir -m 1777 "$system/tmp"

# Prints the named packages and all packages that they depend on, as far as they are installed. Of
# alternative dependencies, it takes every installed one.
closure() {
    dpkg-query -W -f '${Package}\t${db:Status-Status}\t${Pre-Depends}, ${Depends}\n' |
        awk -F '\t' -v names="$*" '
            $2 == "installed" { needs[$1] = $3 }
            END {
                count = split(names, queue, " ")
                for (i = 1; i <= count; i++) {
                    if (!(queue[i] in needs) || queue[i] in taken) continue
                    taken[queue[i]] = 1
                    print queue[i]
                    parts = split(needs[queue[i]], part, /[,|]/)
                    for (j = 1; j <= parts; j++) {
                        sub(/^ */, "", part[j])
                        sub(/[ :(].*/, "", part[j])
                        queue[++count] = part[j]
                    }
                }
            }'
}

for name in bin lib lib64 sbin; do # if these are links into /usr, packages may not list them
    if [ -L /$name ]; then cp -P /$name "$system/$name" && mkdir -p "$system/usr/$name"; fi
done
cp /etc/passwd /etc/group "$system/etc"
mknod -m 666 "$system/dev/null" c 1 3
closure base-files coreutils dash python3 python3-venv > "$system/tmp/packages"
# shellcheck disable=SC2046 # names are words
dpkg-query -L $(cat "$system/tmp/packages") | grep '^/[^.]' |
    while read -r path; do # container images lack manuals and similar files that packages list
        if [ -L "$path" ] || [ -f "$path" ]; then echo "${path#/}"; fi
    done > "$system/tmp/files"
tar -c -C / --no-recursion -T "$system/tmp/files" | tar -x -C "$system" --keep-directory-symlink
ldconfig -r "$system"
echo "$system: $(wc -l < "$system/tmp/packages") packages, $(du -sm "$system" | cut -f 1) MB"
