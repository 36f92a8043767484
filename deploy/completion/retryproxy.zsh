#compdef retryproxy
_retryproxy() {
  local -a commands=(
    'serve:forward requests; this is the default command'
    'check:check the settings and print the effective ones'
    'explain:show which route a request takes, and whether it would be retried'
    'health:ask a running retryproxy whether it accepts requests'
    'drain:shut a running retryproxy down gracefully'
    'demo:see it work'
    'version:print the version'
    'man:print the manual page'
    'help:show the help of a command'
  )
  if ((CURRENT == 2)) || { ((CURRENT == 3)) && [[ $words[2] == help ]]; }; then
    _describe command commands
    return
  fi
  shift words
  ((CURRENT--))
  case $words[1] in
  check) _arguments '--all[print every setting of every route]' '--json[print JSON]' '--help' ;;
  explain)
    _arguments '*-H[a header of the request]:header:' '--json[print JSON]' '--listen[the listener that gets the request]:address:' \
      '--model[the model in the body]:name:' '--proxied[send the URL as a client with http_proxy does]' '--help' '1:method:(GET POST PUT DELETE)' '2:URL:'
    ;;
  health) _arguments '--address[the admin listener]:address:' '--live[ask whether the process is alive]' '--timeout[time for the response]:duration:' '--help' ;;
  drain) _arguments '--address[the admin listener]:address:' '--timeout[time for the response]:duration:' '--help' ;;
  demo) _arguments '--for[how long to run]:duration:' '--rate[requests per second]:number:' '--seed[the same seed gives the same failures]:number:' '--help' ;;
  *) _arguments '--help' ;;
  esac
}
# As a file of fpath its content is the function; sourced, it is registered.
if [[ $funcstack[1] == _retryproxy ]]; then _retryproxy "$@"; else compdef _retryproxy retryproxy; fi
