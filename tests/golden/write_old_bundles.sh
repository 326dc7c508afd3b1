#!/usr/bin/env bash
# Write tests/golden/before_redesign with the code of commit d618e6e: a dataset, a run, two bundles and their lists.
#
#     git worktree add OLD d618e6e
#     PYTHONPATH=OLD bash tests/golden/write_old_bundles.sh NEW_FOLDER
#
# expected.json holds what that code printed for the dataset, the run and the bundles. Everything follows from seed 0.
set -euo pipefail
mkdir "$1"
cd "$1"
lightgc2n() { python -m lightgc2n "$@"; }

lightgc2n generate --out data --accounts 50 --seed 0 --set households.weeks=4 \
  --set households.video_items=200 --set households.learn_items=200 --set households.events_per_account=20
lightgc2n train data --out run --model lightgc2n-plus --epochs 1 --seed 0 --device cpu \
  --set lightgc2n-plus.width=4 --set lightgc2n-plus.followers=4 --set lightgc2n-plus.trending=8 \
  --set lightgc2n-plus.max_length=20
lightgc2n export run --out bundle
lightgc2n export run --out bundle-int8 --int8 --no-people --no-histories

accounts=(--account h000000 --account h000007 --account h000049)
history=(--history v00076,l00129,v00179,v00076)
{
  echo '{"statistics":' && lightgc2n describe data --json
  for place in run bundle; do
    echo ",\"$place\": {\"accounts\":" && lightgc2n recommend $place "${accounts[@]}" -k 10 --json
    echo ', "history":' && lightgc2n recommend $place "${history[@]}" -k 10 --json && echo '}'
  done
  echo ', "bundle-int8": {"history":' && lightgc2n recommend bundle-int8 "${history[@]}" -k 10 --json && echo '}'
  echo ', "people":' && lightgc2n people bundle --account h000007 -k 3 --json && echo '}'
} > printed.json
python -c 'import json; json.dump(json.load(open("printed.json")), open("expected.json", "w"), indent=0)'
# The run is loaded, not resumed, and its people are those of the bundle.
rm -r printed.json run/last.safetensors run/people
# The path of the dataset on the machine that wrote it means nothing elsewhere.
sed -i 's|"folder": ".*"|"folder": "data"|' run/run.json
