//! `canary`: plays the internet for the audits of another machine, until it is told to end.

use std::io::Write;

use anyhow::{Context, Result, anyhow};

use super::args;
use super::signals::Signals;
use crate::exit_code;
use crate::gate::Interrupted;
use crate::range::outpost::far::{Canary, CannotListen, Ports};

/// Serves until a signal ends it. An error means that nothing was served.
pub fn serve(arguments: &args::Canary) -> Result<i32> {
    let ports = Ports {
        tcp: arguments.tcp.clone(),
        udp: arguments.udp.clone(),
        dns: arguments.dns.clone(),
        control: arguments.control,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    runtime.block_on(async {
        let mut signals = Signals::listen().context("listen for signals")?;
        let canary = Canary::open(&ports).map_err(all_of)?;
        for place in canary.taken() {
            eprintln!("warning: another program of this host has {place}: nothing is heard there");
        }
        // A reader that is gone does not end it.
        let _ = writeln!(
            std::io::stdout(),
            "listening on every address: {}; audits ask on port {}",
            canary.description(),
            ports.control
        );
        tokio::select! {
            signal = signals.next() => Ok(match signal {
                Interrupted::HangUp => exit_code::HUNG_UP,
                Interrupted::Interrupt => exit_code::INTERRUPTED,
                Interrupted::Terminate => exit_code::TERMINATED,
            }),
            ended = canary.serve() => ended.map(|()| exit_code::HELD).context("serve audits"),
        }
    })
}

fn all_of(errors: Vec<CannotListen>) -> anyhow::Error {
    let each: Vec<String> = errors.iter().map(ToString::to_string).collect();
    anyhow!(
        "{}\nhelp: ports below 1024 need root; others are named with --tcp, --udp, --dns and --control",
        each.join("\nerror: ")
    )
}
