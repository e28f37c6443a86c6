choose_devices() {
  local found
  found=$(render_nodes | wc -l)
  [ "$found" = "$gpus" ] || refuse "a job of $gpus GPUs would get all of /dev/dri, and this host shows $found GPUs"
  devices=(--device=/dev/kfd --device=/dev/dri)
}
