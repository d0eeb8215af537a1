//! Builds the probe: a static program that the harness carries inside itself.
//!
//! A cargo of its own, with its own target folder and without the flags of the outer build, because the probe is
//! linked in another way than everything else.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=probe/src");
    println!("cargo::rerun-if-changed=probe/Cargo.toml");
    println!("cargo::rerun-if-changed=build.rs");
    // The library is compiled in; the compiler itself does not notice a new file.
    println!("cargo::rerun-if-changed=escapes");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("probe");
    let target = env::var("TARGET").unwrap_or_default();
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let inherited =
            text.starts_with("CARGO") && text != "CARGO_HOME" && text != "CARGO_NET_OFFLINE";
        if inherited
            || matches!(
                &*text,
                "RUSTFLAGS" | "RUSTC_WRAPPER" | "RUSTC_WORKSPACE_WRAPPER"
            )
        {
            cargo.env_remove(&name);
        }
    }
    let status = cargo
        .args(["build", "--release", "--bin", "escape-audit-probe"])
        .args(["--manifest-path", "probe/Cargo.toml"])
        .args(["--target", &target])
        .arg("--target-dir")
        .arg(&out)
        .args(["--config", "profile.release.opt-level=\"s\""])
        .args(["--config", "profile.release.lto=\"fat\""])
        .args(["--config", "profile.release.codegen-units=1"])
        .args(["--config", "profile.release.panic=\"abort\""])
        .args(["--config", "profile.release.strip=true"])
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            ["-Ctarget-feature=+crt-static", "-Crelocation-model=static"].join("\x1f"),
        )
        .status();
    let probe = out.join(&target).join("release/escape-audit-probe");
    match status {
        Ok(status) if status.success() && probe.is_file() => {
            println!("cargo::rustc-env=ESCAPE_AUDIT_PROBE={}", probe.display());
        }
        _ => println!(
            "cargo::error=the static probe could not be built: it needs the system's static C library \
             (Debian, Ubuntu: libc6-dev; Fedora: glibc-static; Alpine: musl-dev)"
        ),
    }
}
