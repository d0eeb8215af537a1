#!/usr/bin/env bash
# For any other CI, or by hand before a merge: audits, keeps the reports, and ends with the audit's own exit code.
#
#   examples/ci/pre-merge.sh [REPORTS] [ARG]…        ARGs go to `escape-audit run`
set -euo pipefail

reports=${1:-escape-audit-reports}
shift || true

status=0
escape-audit run --junit "$reports/report.xml" --json "$reports/report.json" --format "html=$reports/report.html" "$@" || status=$?

case $status in
  0) echo "merge: everything that was tried held" ;;
  1) echo "do not merge: something escaped, or is broken; see $reports/report.html" >&2 ;;
  2) echo "do not merge: nothing ran, for there is a mistake in what was asked" >&2 ;;
  *) echo "do not merge: nothing is proven; see $reports/report.html" >&2 ;;
esac
# Every code but 0 is red. A pipe behind the audit, or an `|| true`, would turn it green.
exit "$status"
