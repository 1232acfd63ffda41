#!/usr/bin/env bash
# Installs, by apt, what building and testing need and this machine lacks. Prints the pg_config to use. Where nothing
# is missing it calls neither apt nor sudo, and needs no network.
#
#   PG_CONFIG   the installation to use; default: the first in the PATH, else the distribution's
#   NEEDED      more that is needed, each as program:package or file:package, where @ is the server's major version
#   WISHED      the same, of what can be done without
set -euo pipefail

# What $1, a pg_config, lacks of a whole installation: server, development files (with the test drivers), libpq. The
# files say so, not pg_config: Debian has that and PGXS in other packages than the server's headers.
lacks() {
    local pgxs bin
    if ! pgxs=$("$1" --pgxs 2>/dev/null) || ! bin=$("$1" --bindir); then
        echo server development libpq
        return
    fi
    [ -x "$bin/initdb" ] && [ -x "$bin/postgres" ] && [ -x "$bin/psql" ] || echo server
    [ -f "$pgxs" ] && [ -x "${pgxs%/makefiles/*}/test/isolation/isolationtester" ] &&
        [ -f "$("$1" --includedir-server)/postgres.h" ] || echo development
    [ -f "$("$1" --includedir)/libpq-fe.h" ] || echo libpq
}
whole() { [ -z "$(lacks "$1")" ]; }

apt() {
    local sudo=sudo
    [ "$(id -u)" -ne 0 ] || sudo=
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" </dev/null >&2
}

# The server's major version to install: the one asked for by path, else the one at hand, else the distribution's.
major() {
    local path
    case ${PG_CONFIG:-} in
        /usr/lib/postgresql/*/bin/pg_config) path=$PG_CONFIG ;;
        *) path=$(printf '%s\n' /usr/lib/postgresql/*/bin/postgres | sort -V | tail -n 1) ;;
    esac
    path=${path#/usr/lib/postgresql/}
    path=${path%%/*}
    [ "$path" != '*' ] || path=$(apt-cache depends postgresql | sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p' | head -n 1)
    echo "$path"
}

# Package $1, in the release that the installed server has, if there is one and the package can be had in it.
of_the_server() {
    local release
    release=$(dpkg-query -W -f '${Version}' "postgresql-$version" 2>/dev/null) || true
    if [ -n "$release" ] && apt-cache show "$1=$release" >/dev/null 2>&1; then echo "$1=$release"; else echo "$1"; fi
}

fail() { echo "$1" >&2; exit 1; }

# Of program:package or file:package, with @ for the version: is it there; and the package.
there() {
    local what=${1%%:*}
    command -v "${what//@/$(major)}" >/dev/null || [ -e "${what//@/$(major)}" ]
}
package() { local name=${1#*:}; echo "${name//@/$(major)}"; }

pg_config=${PG_CONFIG:-pg_config}
missing=()
if ! whole "$pg_config"; then
    # Of the others we do not know how to install them; and to test another PostgreSQL than the one named would be a lie.
    case $pg_config in
        pg_config | /usr/lib/postgresql/*/bin/pg_config) missing+=(server) ;;
        *) fail "$pg_config is not the pg_config of a whole PostgreSQL: server, client, development files" ;;
    esac
fi
command -v make >/dev/null || missing+=(make)
command -v gcc >/dev/null || command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v prove >/dev/null || missing+=(perl)
perl -MIPC::Run -e 1 2>/dev/null || missing+=(libipc-run-perl)
for pair in ${NEEDED:-}; do there "$pair" || missing+=("$(package "$pair")"); done

if [ ${#missing[@]} -gt 0 ]; then
    command -v apt-get >/dev/null ||
        fail "Missing: ${missing[*]} (server: a PostgreSQL with its development files, named by PG_CONFIG)"
    apt-cache show libipc-run-perl >/dev/null 2>&1 || apt update
    if [ "${missing[0]}" = server ]; then
        version=$(major)
        missing=("${missing[@]:1}")
        installed=/usr/lib/postgresql/$version/bin/pg_config
        [ -x "$installed" ] || installed=$pg_config
        # No more than is missing, and if possible of the server's own release: it would be upgraded, and the system's
        # clusters restarted.
        for part in $(lacks "$installed"); do
            case $part in
                server) missing+=("postgresql-$version") ;;
                development) missing+=("$(of_the_server "postgresql-server-dev-$version")") ;;
                libpq) missing+=("$(of_the_server libpq-dev)") ;;
            esac
        done
    fi
    # Nothing: the pg_config in the PATH is of half an installation, the distribution's is whole.
    if [ ${#missing[@]} -gt 0 ]; then
        echo "Installing ${missing[*]}" >&2
        # A second try with fresh lists: old ones name versions that the mirror has dropped.
        apt install -y --no-install-recommends "${missing[@]}" ||
            { apt update && apt install -y --no-install-recommends "${missing[@]}"; }
    fi
fi

wished=()
# Without OpenSSL's headers the library is built, too, but encrypts nothing.
for pair in /usr/include/openssl/evp.h:libssl-dev ${WISHED:-}; do there "$pair" || wished+=("$(package "$pair")"); done
if [ ${#wished[@]} -gt 0 ] && command -v apt-get >/dev/null; then
    echo "Installing ${wished[*]}, if they can be had" >&2
    for name in "${wished[@]}"; do
        apt install -y --no-install-recommends "$name" || echo "$name cannot be installed; what needs it is left out" >&2
    done
fi

whole "$pg_config" || pg_config=/usr/lib/postgresql/$(major)/bin/pg_config
whole "$pg_config" || fail "$pg_config is still not the pg_config of a whole PostgreSQL; name one by PG_CONFIG"
command -v "$pg_config"
