#!/usr/bin/env bash
# Within a release's folder: the archive that is uploaded to PGXN. Its META.json, a build and installation from it alone as an ordinary user and root, and
# those by PGXN's own client, with CREATE EXTENSION by it. (Nothing is asked of pgxn.org.)
#
#   pgxn.sh VERSION   of PostgreSQL
set -uo pipefail
# shellcheck source=test/packages/checks.sh
. /mnt/test/packages/checks.sh
pg=$1
pg_config=/usr/lib/postgresql/$pg/bin/pg_config
archive=$(ls /tmp/dist/queue_jobs-*.zip)
name=$(basename "$archive" .zip)

check 'apt installs pgxnclient and unzip' install pgxnclient unzip || exit 1
mkdir -p /tmp/pgxn && cd /tmp/pgxn || exit 1
check 'the archive is unpacked' unzip -q "$archive" || exit 1
is '… into one folder, of its name' "$(ls)" "$name"
check 'META.json keeps to the rules of the PGXN Meta Spec' perl /mnt/test/packages/meta.pl "$name/META.json"
is '… and is of this name and version' "$(perl -MJSON::PP -0ne '$m = decode_json($_); print "$m->{name}-$m->{version}"' "$name/META.json")" "$name"

# ---- make, make install ----

useradd --system --create-home builder
chown -R builder: "$name"
check 'an ordinary user builds it' runuser -u builder -- make -C "$name" -j2 PG_CONFIG="$pg_config"
check 'root installs it' make -C "$name" install PG_CONFIG="$pg_config"
files() { find /usr/lib/postgresql /usr/share/postgresql -name 'queue_jobs*' | sort; }
installed=$(files)
is '… library, control file and scripts' "$(wc -l <<<"$installed")" 5
check '… and uninstalls it' make -C "$name" uninstall PG_CONFIG="$pg_config"
is '… all of it' "$(files)" ''
cd / && rm -r /tmp/pgxn

# ---- pgxn ----

check 'pgxn install' pgxn install --verbose --unstable --nosudo --pg_config "$pg_config" "$archive" || exit 1
is '… installs the same' "$(files)" "$installed"
cluster "$pg" && pg_ctlcluster "$pg" test start || exit 1
check 'pgxn load' runuser -u postgres -- pgxn load --yes --unstable --pg_config "$pg_config" --port "$(pg_conftool -s "$pg" test show port)" --dbname postgres "$archive"
check 'a worker is defined, a job enqueued' sql postgres -c "CREATE TABLE ran (n int)" -c "CREATE FUNCTION work(n int) RETURNS void LANGUAGE sql AS 'INSERT INTO ran SELECT work.n'" \
    -c "SELECT queue_jobs.define_worker('work', 'public.work')" -c "SELECT queue_jobs.enqueue('work', '{\"n\": 42}')"
becomes 'it runs' 42 sql postgres -c 'SELECT n FROM ran'
check 'pgxn unload' runuser -u postgres -- pgxn unload --yes --unstable --pg_config "$pg_config" --port "$(pg_conftool -s "$pg" test show port)" --dbname postgres "$archive"
check 'pgxn uninstall' pgxn uninstall --yes --unstable --nosudo --pg_config "$pg_config" "$archive"
is '… all of it' "$(files)" ''
pg_ctlcluster "$pg" test stop -m fast
