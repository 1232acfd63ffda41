#!/usr/bin/env bash
# unpacked.sh NAME PACKAGE…: prints a folder with these packages of Debian's, unpacked. Installed, each would bring a service
# that runs from then on. Fetches them if they are not there.
#
#   CACHE   where the folder is kept, as NAME; default: $XDG_CACHE_HOME/queue_jobs, else /var/cache/queue_jobs, or
#           ~/.cache/queue_jobs without the right to write there. Remove it to have the latest packages.
set -uo pipefail

name=$1
packages=("${@:2}")
system=/var/cache
[ -w "$system" ] || system=$HOME/.cache
cache=${CACHE:-${XDG_CACHE_HOME:-$system}/queue_jobs}
folder=$cache/$name

# apt with lists and packages in a folder of their own: the machine's may be old, and only root can renew them.
fetch() {
    local apt=$1
    mkdir -p "$apt"/{lists,archives}/partial "$apt/unpacked" || return
    local options=(-q -o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt" -o Dir::Cache::archives="$apt/archives" -o APT::Sandbox::User=
        -o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Update::Post-Invoke-Success::=true)
    timeout 300 apt-get "${options[@]}" update && (cd "$apt/archives" && timeout 300 apt-get "${options[@]}" download "${packages[@]}") || return
    local package
    for package in "$apt"/archives/*.deb; do dpkg-deb -x "$package" "$apt/unpacked" || return; done
    chmod -R a+rX "$apt/unpacked" && mv -T "$apt/unpacked" "$folder"
}

if [ ! -d "$folder" ]; then
    mkdir -p "$cache" && exec 9>"$cache/$name.lock" && flock 9 && work=$(mktemp -d) || exit
    trap 'rm -rf "$work"' EXIT
    [ -d "$folder" ] || { echo "Fetching ${packages[*]}" >&2 && fetch "$work" >"$work/log" 2>&1; } ||
        { tail -n 3 "$work/log" >&2; echo "They cannot be had; the tests that need them fail" >&2; exit 1; }
fi
echo "$folder"
