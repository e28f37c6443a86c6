choose_devices() {
  local found=("$root"/proc/driver/nvidia/gpus/*)
  [ -e "${found[0]}" ] || found=()
  [ "${#found[@]}" = "$gpus" ] || refuse "a job of $gpus GPUs would get all, and this host shows ${#found[@]} GPUs"
  devices=(--gpus=all)
}
