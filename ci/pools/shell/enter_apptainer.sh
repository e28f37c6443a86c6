enter() {
  local flags=() passed=() one
  for one in "${environment[@]}"; do passed+=("APPTAINERENV_$one"); done  # --env would split a value at its commas
  for one in ${mounts[@]+"${mounts[@]}"}; do flags+=("--bind=$one"); done
  supervise env -i PATH="$PATH" HOME="${HOME-/}" "${passed[@]}" apptainer exec --cleanenv --no-home \
    ${flags[@]+"${flags[@]}"} ${options[@]+"${options[@]}"} --bind="$workspace:$workspace" --pwd="$workspace" \
    "$image" bash -c "$(entry)"
}
