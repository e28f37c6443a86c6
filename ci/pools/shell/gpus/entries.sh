# `entries`: what was given to this job, as indices or GPU-<unique id>.
count_entries() {
  local IFS=,
  # shellcheck disable=SC2206
  list=($entries)
  [ "${#list[@]}" = "$gpus" ] ||
    refuse "the job wants $gpus GPUs and $source gives ${#list[@]} (${entries:-none}); correct the pool or the runner"
}
