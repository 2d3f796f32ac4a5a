//! The command `forebay`.

mod add;
mod bench;
mod completion;
mod config;
mod contracts;
mod doctor;
mod duration;
mod eval;
mod get;
mod group;
mod heal;
mod leave;
mod live;
mod ls;
mod output;
mod picture;
mod pipeline;
mod serve;
mod servers_log;
mod status;
mod subscribe;
mod summary;
mod table;
mod top;
mod values;
mod wait;
mod watch;

use clap::{CommandFactory, Parser, Subcommand};
use forebay_client::{ErrorKind, GroupOptions, Result, TransportChoice};
use output::Output;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// What `main` returns; 2 is clap's.
const EXITS: &str = "Exit status: 0 done, 1 it failed, 2 wrong usage, 3 no group was found or reached";

/// The exit status where no server was reached.
const UNREACHED: u8 = 3;

/// Stages a simulation's fields in memory, step by step, for whoever wants to look.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, max_term_width = 80, arg_required_else_help = true, after_help = EXITS)]
struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, clap::Args)]
struct Common {
    /// The group: a connection file's path, or a name [default: as
    /// FOREBAY_GROUP says, else default]
    #[arg(long, short, global = true)]
    group: Option<String>,
    /// How to reach servers: auto, shm or tcp
    #[arg(long, global = true, default_value = "auto", value_name = "WAY", hide_default_value = true,
          value_parser = transport)]
    transport: TransportChoice,
    /// How long any wait may take, as in 20, 2m or 500ms [default: 30]
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration::patience)]
    timeout: Option<Duration>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
    /// Say what is done (-v) and in detail (-vv)
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a group of servers on this machine
    ///
    /// They print to a file beside the connection file, named like it with
    /// .forebay.log added. `forebay down` ends them and removes both.
    Up(group::Up),
    /// Add servers on this machine to a running group, in the background
    ///
    /// `forebay serve --group FILE` adds one on any machine that sees the
    /// group's connection file.
    Add(add::Add),
    /// Have a server leave the group, and end
    ///
    /// What it holds goes to the others first; ranks, readers and pipelines go
    /// on there. If that takes longer than --timeout, it stays.
    Leave(leave::Leave),
    /// Go on after half of the servers or more were lost at once
    ///
    /// Fewer losses are mended by the group itself. Says which servers answer
    /// and which do not; does something only with --force.
    Heal(heal::Heal),
    /// End a group and all its servers
    Down,
    /// Run one server in the foreground; it founds the group or joins it
    Serve(serve::Serve),
    Status(status::Status),
    Top(top::Top),
    Ls(ls::Ls),
    Contracts(contracts::Contracts),
    Get(get::Get),
    Eval(eval::Eval),
    Subscribe(subscribe::Subscribe),
    Subscriptions(subscribe::Subscriptions),
    Watch(watch::Watch),
    Wait(wait::Wait),
    /// Create, destroy and look at pipelines
    #[command(subcommand)]
    Pipeline(pipeline::Pipeline),
    /// Measure speed and memory on this machine
    #[command(disable_help_flag = true)]
    Bench(bench::Bench),
    /// Say what is missing on this machine, and the remedy
    Doctor,
    Config(config::Config),
    Completion(completion::Completion),
    Man(completion::Man),
}

fn transport(text: &str) -> std::result::Result<TransportChoice, String> {
    TransportChoice::parse(text).map_err(|e| e.text)
}

impl Common {
    fn group_options(&self) -> Result<GroupOptions> {
        Ok(GroupOptions {
            group: self.group.clone(),
            transport: self.transport,
            timeout: self.timeout,
            name: None,
        })
    }
}

/// When, and which process: the servers of a group on one machine share a log.
struct LogPrefix;

impl tracing_subscriber::fmt::time::FormatTime for LogPrefix {
    fn format_time(&self, to: &mut tracing_subscriber::fmt::format::Writer<'_>) -> std::fmt::Result {
        tracing_subscriber::fmt::time::SystemTime.format_time(to)?;
        write!(to, " {}", std::process::id())
    }
}

fn log(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("FOREBAY_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    let _ = tracing_subscriber::fmt()
        .with_timer(LogPrefix)
        .with_env_filter(filter)
        .with_target(false)
        .with_writer(std::io::stderr)
        .try_init();
}

fn run(arguments: Arguments, output: &Output) -> Result<ExitCode> {
    let common = &arguments.common;
    match arguments.command {
        Command::Up(up) => group::up(common, &up, output),
        Command::Add(add) => add::add(common, &add, output),
        Command::Leave(leave) => leave::leave(common, &leave, output),
        Command::Heal(heal) => heal::heal(common, &heal, output),
        Command::Down => group::down(common, output),
        Command::Serve(serve) => serve::serve(common, &serve, output),
        Command::Status(status) => status::status(common, &status, output),
        Command::Top(top) => top::top(common, &top, output),
        Command::Contracts(contracts) => contracts::contracts(common, &contracts, output),
        Command::Ls(ls) => ls::ls(common, &ls, output),
        Command::Get(get) => get::get(common, &get, output),
        Command::Eval(eval) => eval::eval(common, &eval, output),
        Command::Subscribe(given) => subscribe::subscribe(common, &given, output),
        Command::Subscriptions(given) => subscribe::subscriptions(common, &given, output),
        Command::Watch(watch) => watch::watch(common, &watch, output),
        Command::Wait(wait) => wait::wait(common, &wait, output),
        Command::Pipeline(command) => pipeline::pipeline(common, &command, output),
        Command::Bench(bench) => bench::bench(common, &bench),
        Command::Doctor => doctor::doctor(common, output),
        Command::Config(config) => config::config(&config, output),
        Command::Completion(completion) => completion::completion(&completion),
        Command::Man(man) => completion::man(&man),
    }
}

fn main() -> ExitCode {
    // A shell asks what may stand at a place: answers, and ends.
    clap_complete::CompleteEnv::with_factory(Arguments::command).complete();
    let arguments = Arguments::parse();
    log(arguments.common.verbose);
    // A limit of the size of files ends a process that does not look for its signal: the call fails instead, and says why.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let output = Output::new(arguments.common.json);
    match run(arguments, &output) {
        Ok(code) => code,
        Err(error) => {
            output.error(&error);
            ExitCode::from(match error.kind {
                ErrorKind::ConnectionFile | ErrorKind::Unreachable => UNREACHED,
                _ => 1,
            })
        }
    }
}
