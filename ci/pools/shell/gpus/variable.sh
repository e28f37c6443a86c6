# Without docker a job has the devices of its user or its allocation; the variable says which of them it uses.
choose_devices() {
  local name kept=()
  find_entries
  for name in "${environment[@]}"; do
    case ${name%%=*} in *_VISIBLE_DEVICES | GPU_DEVICE_ORDINAL) ;; *) kept+=("$name") ;; esac
  done
  environment=("${kept[@]}" "@VARIABLE@=$entries")
}
