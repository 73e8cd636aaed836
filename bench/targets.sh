#!/usr/bin/env bash
# targets.sh: what docs/performance.md aims at on GPU lanes, measured in one go: each target, what explains it, and what to try next.
# usage: targets.sh PROGRAM LANES FOLDER [--short]     (./run bench targets FOLDER [--short] builds the program first)
#
# One run after the other, each with a raw result of its own in FOLDER (docs/runs/README.md) and an end of its own; then a table of
# targets beside medians. --short: everything a thousandth as large, to see that it runs. Ends with 1 if a run failed or gave wrong data.
set -euo pipefail

program="$1" lanes="$2" folder="$3" short="${4:-}"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
mkdir -p "$folder"

seconds=0.5 large=32GiB middle=8GiB small=256MiB budget=16GiB threads=14 halves=7 few=5 warps=256 channels=32 limit=150
share=1
if [[ "$short" == --short ]]; then
    seconds=0.05 large=32MiB middle=16MiB small=8MiB budget=64MiB threads=3 halves=1 few=1 warps=8 channels=4 limit=60
    share=8
fi
failed=0

# measure NAME ARG...: one run, its table on standard output.
measure() {
    local name="$1" begun=$SECONDS
    shift
    echo "== $name: bench path $*"
    if timeout "$limit" "$program" path --lanes "$lanes" --no-fio --json "$folder/path-$lanes-$name.json" "$@"; then
        echo "   ($((SECONDS - begun)) s)"
    else
        echo "   FAILED with exit status $? after $((SECONDS - begun)) s"
        failed=1
    fi
}

reads=(--ops read --no-reference --engine-threads "$threads" --seconds "$seconds")
# Each thread runs NICs and a drive; or half of the threads run NICs, and half a drive each.
both=(--nic-threads "$threads" --ssds "$threads")
apart=(--nic-threads "$halves" --ssds "$((threads - halves))")

# The lone lane: the whole, its steps, and the same on a channel of the grid. NIC and drives on threads of their own, and all on one.
lone=(--alone --repeats 5 --seconds "$seconds" --write-budget "$small" --working-set "$small")
measure alone "${lone[@]}" --sizes 512,4096 --engine-threads "$((threads < 4 ? threads : 4))"
measure alone-one-thread "${lone[@]}" --sizes 4096 --ops read --engine-threads 1
# The targets, on the working set that they name. Writes have less: each repeat fills an array of its own, twice what is said here.
measure blocks "${reads[@]}" "${both[@]}" --sizes 512,4096 --repeats 5 --working-set "$large"
measure pieces "${reads[@]}" "${both[@]}" --sizes 65536 --repeats 5 --working-set "$large"
measure writes --ops write --no-reference --engine-threads "$threads" "${both[@]}" --sizes 4096 --repeats 5 --seconds "$seconds" \
    --working-set "$middle" --write-budget "$budget"
measure blocks-few-large "${reads[@]}" --nic-threads "$few" --ssds "$((threads - few))" --sizes 4096,65536 --repeats 3 --working-set "$large"
# What explains them: how much is the working set's size, the comparing, the split of the threads, the load, the sharing of channels.
measure blocks-small "${reads[@]}" "${both[@]}" --sizes 512,4096,65536 --repeats 3 --working-set "$small"
measure blocks-unchecked "${reads[@]}" "${both[@]}" --sizes 512,4096,65536 --repeats 3 --working-set "$small" --verify none
measure blocks-apart "${reads[@]}" "${apart[@]}" --sizes 512,4096,65536 --repeats 3 --working-set "$small"
measure blocks-few "${reads[@]}" --nic-threads "$few" --ssds "$((threads - few))" --sizes 512,4096,65536 --repeats 3 --working-set "$small"
measure blocks-open "${reads[@]}" "${both[@]}" --sizes 4096 --repeats 3 --working-set "$small" --rate 1000000
for some in 8 32 128; do
    measure "blocks-one-channel-$some" "${reads[@]}" "${both[@]}" --sizes 4096 --repeats 3 --working-set "$small" --channels 1 --warps "$((some / share))"
done
measure blocks-one-channel "${reads[@]}" "${both[@]}" --sizes 4096 --repeats 3 --working-set "$small" --channels 1 --warps "$warps"
measure blocks-a-warp-each "${reads[@]}" "${both[@]}" --sizes 4096 --repeats 3 --working-set "$small" --channels "$channels" --warps "$channels"

python3 "$here/targets.py" "$lanes" "$folder" || failed=1
exit "$failed"
