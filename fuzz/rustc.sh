#!/bin/sh
# What cargo runs as `rustc.sh rustc ...` while it builds the fuzz targets: takes the instrumentation out
# of crates that are linked but never run, or whose branches say nothing.
# INSTRUMENTED holds the names of all others (build.py).

rustc=$1
shift
crate=
before=
for argument; do
  [ "$before" = --crate-name ] && crate=$argument
  before=$argument
done
case " $INSTRUMENTED " in
  *" $crate "*) exec "$rustc" "$@" ;;
esac
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  left=$((left - 1))
  case $argument in
    -Cpasses=sancov-module | -Cllvm-args=-sanitizer-* | -Cllvm-args=-simplifycfg-*) ;;
    -?sanitizer=* | -Ccodegen-units=1) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "$rustc" "$@"
