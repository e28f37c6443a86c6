find_entries() {
  local name
  source="the environment"
  entries=
  for name in @VISIBLE@; do
    [ -z "${!name-}" ] || { entries=${!name} source=$name; break; }
  done
  count_entries
}
