# A container that ran as root leaves files that the runner's user cannot remove.  They are given to that user.
own() {
  local foreign
  [ "$(id -u)" != 0 ] || return 0
  foreign=$(find "$workspace" -xdev ! -uid "$(id -u)" -print -quit 2>/dev/null)
  [ -n "$foreign" ] || return 0
  give || say "$foreign belongs to somebody else; as root: chown -hR $(id -u):$(id -g) '$workspace'"
}
