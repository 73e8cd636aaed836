#!/usr/bin/env bash
# try_packages.sh: in a fresh system, as root: installs the packages in /packages, uses what they bring as a user would, builds and runs an
# example of /src against the library, and removes them again. Ends at the first thing that is not as promised.
set -euxo pipefail

# The services' manager is not here, so what refers to it must do without.
apt-get update
apt-get install --yes --no-install-recommends /packages/gnstor_*.deb /packages/libgnstor-dev_*.deb

gnstor --version
gnstord --version
for page in man1/gnstor.1 man1/gnstor-put.1 man1/gnstor-volume-create.1 man8/gnstord.8; do
    [[ -s "/usr/share/man/$page" || -s "/usr/share/man/$page.gz" ]]
done

complete_word() { # WORD...: what completion offers for the last of them
    bash -c 'source /usr/share/bash-completion/completions/gnstor; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gnstor; printf "%s\n" "${COMPREPLY[@]}"' complete "$@"
}
[[ "$(complete_word gnstor volume cr)" == create ]]
[[ "$(complete_word gnstor volume create --repl)" == --replicas ]]
[[ "$(complete_word gnstor up --durability p)" == $'process\npower' ]]

# As gnstord.service starts it: the same command line, user and options.
getent passwd gnstor
install --directory --owner gnstor --group gnstor --mode 0750 /var/lib/gnstor /run/gnstor
# shellcheck source=/dev/null
source /etc/default/gnstor
command="$(sed -n 's/^ExecStart=//p' /lib/systemd/system/gnstord.service)"
# shellcheck disable=SC2086
setpriv --reuid gnstor --regid gnstor --init-groups ${command/\$GNSTORD_OPTIONS/$GNSTORD_OPTIONS} &
daemon=$!
for ((wait = 0; wait < 300; ++wait)); do [[ ! -S /run/gnstor/gnstord.sock ]] || break; sleep 0.1; done
export GNSTOR_ARRAY
as_member() { setpriv --reuid nobody --regid gnstor --clear-groups "$@"; }
as_member gnstor status
as_member gnstor put /usr/bin/gnstor program
as_member gnstor cat program | cmp - /usr/bin/gnstor
# Who is not of the group does not get in.
if setpriv --reuid nobody --regid nogroup --clear-groups gnstor status; then exit 1; fi
kill -TERM "$daemon"
wait "$daemon"
for store in /var/lib/gnstor/*.store; do gnstor ssd check "$store"; done

# The library, as a project of its own finds it.
cmake -S /src/examples/vector_add -B /tmp/vector_add -G Ninja -DCMAKE_BUILD_TYPE=Release
cmake --build /tmp/vector_add
ctest --test-dir /tmp/vector_add --output-on-failure --no-tests=error

apt-get remove --yes gnstor libgnstor-dev
hash -r
if command -v gnstor || command -v gnstord; then exit 1; fi
[[ -z "$(find /usr /lib/systemd -name '*gnstor*' -not -path '/usr/share/doc/*' -print -quit)" ]]
[[ -s /var/lib/gnstor/ssd-0.store ]] # data stays
echo "the packages are as promised"
