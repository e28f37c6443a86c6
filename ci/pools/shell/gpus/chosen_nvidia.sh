choose_devices() {
  find_entries
  devices=("--gpus=\"device=$entries\"")
}
