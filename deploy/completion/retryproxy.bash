# bash completion of retryproxy
_retryproxy() {
  local word=${COMP_WORDS[COMP_CWORD]} flags=--help
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ] || { [ "$COMP_CWORD" -eq 2 ] && [ "${COMP_WORDS[1]}" = help ]; }; then
    mapfile -t COMPREPLY < <(compgen -W "serve check explain health drain demo version man help" -- "$word")
    return
  fi
  case ${COMP_WORDS[1]} in
  check) flags="--all --json --help" ;;
  explain) flags="-H --json --listen --model --proxied --help" ;;
  health) flags="--address --live --timeout --help" ;;
  drain) flags="--address --timeout --help" ;;
  demo) flags="--for --rate --seed --help" ;;
  esac
  case $word in -*) mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word") ;; esac
}
complete -F _retryproxy retryproxy
