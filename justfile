# The commands of a working day. `just` alone lists them.

_list:
    @just --list --unsorted

# audit the embedded sandbox (ARGS as for `escape-audit run`)
run *ARGS:
    cargo run --release --locked -- run {{ ARGS }}

# every test, in the range and in the VM (as root; ARGS narrow it to some of `cargo test`)
test *ARGS:
    fixtures/range/test {{ ARGS }}

# what each part of an audit costs
bench *ARGS:
    cargo bench --locked {{ ARGS }}

# formatting, clippy, documentation, licences, shell scripts, workflows
lint:
    .ci/run lint

# the audits on two kernels, side by side (needs range-up)
vm:
    cargo build --release --locked
    fixtures/range/audits

# make the place from which no packet can leave
range-up:
    fixtures/range/up

# and remove it
range-down:
    fixtures/range/down

# all that a pull request has to pass
ci:
    .ci/run
