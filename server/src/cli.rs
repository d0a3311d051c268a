//! The command line: flags to settings, and errors to one line.

use std::{net::SocketAddr, path::PathBuf};

use clap::{
    CommandFactory, FromArgMatches, Parser,
    error::{ContextKind, ContextValue},
};

use crate::settings::{CONFIG_KEY, ConfigError, ENV_PREFIX, Settings};

const AFTER_HELP: &str = "\
Every flag can also be set in the environment (--max-cameras: VEDETTE_MAX_CAMERAS) or in a
TOML file (max_cameras = 64) named by --config or VEDETTE_CONFIG. Flags win over the
environment, that over the file. --print-config prints the result as such a file.

Once cameras can connect, one line appears on stdout: listening on ADDR. Logs go to stderr.
SIGTERM or Ctrl-C drains: no new streams, frames in hand are answered, then exit 0; a second
one ends at once. SIGHUP reads the model, certificates and tokens anew. Exit codes: 0 stopped,
64 bad setting, 65 bad model, 66 missing file, 69 port taken, 70 failure or a stuck worker.

Examples:
  vedette-server
  vedette-server --model my.onnx --labels my.txt --confidence 0.4
  vedette-server --backend spin --spin-ms 5      capacity without decoding and network";

/// Detects objects on the pictures that cameras send over gRPC, each before its next one.
#[derive(Debug, Parser)]
#[command(name = "vedette-server", version, after_help = AFTER_HELP, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    settings: Settings,

    /// Settings file (TOML), keys as the flags with _ for -
    #[arg(long, value_name = "FILE", help_heading = "Settings")]
    config: Option<PathBuf>,

    /// Print the effective settings as a TOML file and exit
    #[arg(long, help_heading = "Settings")]
    print_config: bool,

    /// Ask the server that runs with these settings whether it takes cameras (/readyz at --admin-addr), and
    /// exit with 0 if it does, 1 if not: the health check of a container that holds nothing else
    #[arg(long, help_heading = "Settings")]
    check_health: bool,
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Command {
    /// Serve with these settings.
    Serve(Box<Settings>),
    /// Print this text and exit 0.
    Print(String),
    /// Ask the server whose operators' port this is whether it is ready.
    CheckHealth(SocketAddr),
}

/// Reads flags, environment and file.
///
/// # Errors
/// With one line that names the flag or key.
pub fn parse(args: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Command, ConfigError> {
    let matches = match Cli::command().try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) if !error.use_stderr() => return Ok(Command::Print(error.render().to_string())),
        Err(error) => return Err(ConfigError(one_line(&error))),
    };
    let cli = Cli::from_arg_matches(&matches).map_err(|error| ConfigError(one_line(&error)))?;
    let settings = Settings::layer(&cli.settings, cli.config.or_else(config_from_env).as_deref())?;
    if cli.print_config {
        // What is printed has been checked.
        settings.clone().check()?;
        return Ok(Command::Print(settings.with_defaults().to_toml()?));
    }
    if cli.check_health {
        return Ok(Command::CheckHealth(settings.check()?.net.admin_addr));
    }
    Ok(Command::Serve(Box::new(settings)))
}

fn config_from_env() -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "the command line layer reads the environment")]
    std::env::var_os(format!("{ENV_PREFIX}{}", CONFIG_KEY.to_uppercase())).map(PathBuf::from)
}

/// The gist of clap's message, with its suggestion.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let gist = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let suggested = [ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let hint = match suggested.into_iter().find_map(|kind| error.get(kind)) {
        Some(suggestion) => format!("; did you mean {suggestion}?"),
        None => match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(values)) if !values.is_empty() => {
                format!("; one of {}", values.join(", "))
            }
            _ => String::new(),
        },
    };
    format!("{gist}{hint} (see --help)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(args: &[&str]) -> Result<Command, ConfigError> {
        parse(std::iter::once(&"vedette-server").chain(args).map(Into::into))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn unknown_flags_are_one_line_with_a_suggestion() {
        let error = run(&["--wrokers", "3"]).expect_err("unknown").0;
        assert!(error.contains("--wrokers") && error.contains("--workers"), "{error}");
        assert!(!error.contains('\n'), "{error}");
        let error = run(&["--backend", "gpu"]).expect_err("value").0;
        assert!(error.contains("gpu") && error.contains("--backend"), "{error}");
        assert!(error.contains("one of onnx, spin"), "{error}");
    }

    #[test]
    fn every_setting_is_in_the_help() {
        let Ok(Command::Print(help)) = run(&["--help"]) else { panic!("help") };
        let keys = Settings::default().with_defaults().to_toml().expect("TOML");
        for key in keys.lines().filter_map(|line| line.split(" = ").next()) {
            assert!(help.contains(&format!("--{}", key.replace('_', "-"))), "{key} in {help}");
        }
    }

    #[test]
    fn print_config_shows_flags_over_defaults() {
        let Ok(Command::Print(text)) = run(&["--print-config", "--workers", "3"]) else {
            panic!("print")
        };
        assert!(text.contains("workers = 3\n"), "{text}");
        assert!(text.contains("max_frame_bytes = 16777216\n"), "{text}");
        assert!(run(&["--print-config", "--workers", "0"]).is_err());
    }
}
