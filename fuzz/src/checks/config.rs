//! A settings file.

use vedette_server::{settings::Settings, telemetry::log_filter};

use super::assert_one_line;

pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let settings = match Settings::from_toml(text) {
        Ok(settings) => settings,
        Err(error) => return assert_one_line(&error.to_string()),
    };
    let config = match settings.clone().check() {
        Ok(config) => config,
        Err(error) => return assert_one_line(&error.to_string()),
    };
    if let Err(error) = log_filter(&config.log.level) {
        assert_one_line(&error);
    }
    // What --print-config prints is a file that means the same.
    let effective = settings.with_defaults();
    let printed = effective.to_toml().expect("text without a path that is no text");
    let again = Settings::from_toml(&printed);
    assert_eq!(again, Ok(effective), "{printed}");
}
