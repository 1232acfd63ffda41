# shellcheck shell=bash
# For releases.sh and test/scale: Debian's source of PostgreSQL. To be sourced.

# postgresql_source MAJOR RELEASE FOLDER: has the sources of RELEASE's PostgreSQL in FOLDER/postgresql-N.N, without Debian's patches. The lists of
# sources, and what apt keeps of them, stay apart from the system's. A mirror may lack the latest version that its list has.
postgresql_source() {
    local major=$1 release=$2 folder=$3 apt=$3/apt options version
    options=(-q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$apt/lists" -o Dir::State::lists="$apt/state"
        -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root -o Acquire::Check-Valid-Until=false)
    mkdir -p "$apt"/lists "$apt"/state/partial "$apt"/cache/archives/partial || return
    cat >"$apt/lists/sources.sources" <<LIST
Types: deb-src
URIs: ${MIRROR:-http://deb.debian.org/debian}
Suites: $release
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb-src
URIs: ${MIRROR:-http://deb.debian.org/debian}-security
Suites: $release-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
LIST
    apt-get "${options[@]}" update || return
    for version in $(apt-cache "${options[@]}" showsrc "postgresql-$major" | sed -n 's/^Version: //p' | sort -Vru); do
        if (cd "$folder" && apt-get "${options[@]}" source --download-only "postgresql-$major=$version"); then
            tar -x -j -C "$folder" -f "$folder/postgresql-${major}_${version%-*}.orig.tar.bz2"
            return
        fi
    done
    return 1
}
