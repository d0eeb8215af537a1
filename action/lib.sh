# shellcheck shell=bash
# What the scripts of the action share. Sourced, never run.
#
# Inputs may hold anything that somebody wrote into a workflow or a matrix. They are words of an array, never text of a
# shell; what is shown of one is quoted, and so holds no command of the runner; what goes into a file of the runner is one
# line.

# quoted VALUE: on one line, as a shell would read it back.
quoted() { printf '%q' "$1"; }

# mistake WHAT HELP: an annotation, which is in the log too.
mistake() { printf '::error title=escape-audit::%s%%0Ahelp: %s\n' "${1//%/%25}" "${2//%/%25}"; }

# one_line NAME VALUE: whether the input has no character that would end a line.
one_line() {
  case $2 in
    *[[:cntrl:]]*) mistake "the input \`$1\` has a line break or a control character: $(quoted "$2")" "write it on one line" && return 1 ;;
  esac
}

# one_of NAME VALUE WORD…: whether the input is one of the words.
one_of() {
  local name=$1 value=$2 word
  shift 2
  for word in "$@"; do [ "$value" != "$word" ] || return 0; done
  mistake "the input \`$name\` is $(quoted "$value")" "write one of: $*"
  return 1
}

# output NAME VALUE: an output of the step.
output() { printf '%s=%s\n' "$1" "$2" >>"$GITHUB_OUTPUT"; }
