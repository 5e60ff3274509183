#!/bin/sh
# Install a Debian package for each COMMAND:PACKAGE whose command is missing. Where that may not be
# done, say so in a sentence and go on: what needs it is skipped by name, or says so itself.
for wanted in "$@"; do
    program=${wanted%%:*}
    package=${wanted#*:}
    command -v "$program" >/dev/null && continue
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "$program is missing; install it by hand (Debian: apt-get install $package)." >&2
        continue
    fi
    echo "Installing $package."
    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends "$package"; } >/dev/null 2>&1 ||
        echo "$package could not be installed; what needs $program is left out." >&2
done
