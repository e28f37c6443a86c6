enter() {
  local flags=() one code
  name=ridgeline-$pool-$$-$RANDOM
  for one in "${environment[@]}"; do flags+=("--env=$one"); done
  for one in ${mounts[@]+"${mounts[@]}"}; do flags+=("--volume=$one"); done
  for one in $(stat --format=%g "$root"/dev/kfd "$root"/dev/dri/renderD* 2>/dev/null | sort -u); do
    flags+=("--group-add=$one")
  done
  supervise docker run --rm --init --name="$name" --label="ridgeline.workspace=$workspace" "${user[@]}" "${flags[@]}" \
    ${devices[@]+"${devices[@]}"} ${options[@]+"${options[@]}"} --volume="$workspace:$workspace" \
    --workdir="$workspace" --entrypoint=bash "$image" -c "$(entry)"
  code=$?
  docker rm --force "$name" >/dev/null 2>&1
  return "$code"
}
