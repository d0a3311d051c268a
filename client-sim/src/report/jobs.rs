//! What `client-sim report`, `compare` and `merge` do: read, work out, print, write.

use super::files::{Loaded, load, write_csv, write_hdr, write_html};
use crate::{config::ReportConfig, error::SimError, print};

/// Shows a report again.
pub fn show(config: &ReportConfig) -> Result<(), SimError> {
    config.files.check()?;
    let loaded = load(&config.path)?;
    if let Some(path) = &config.files.html {
        write_html(&loaded.document(), path)?;
    }
    let tables = config.files.csv.is_some() || config.files.hdr.is_some();
    match &loaded {
        Loaded::Run(report) => {
            if let Some(path) = &config.files.csv {
                write_csv(report, path)?;
            }
            if let Some(path) = &config.files.hdr {
                write_hdr(report, path)?;
            }
            print(&report.table(config.per_camera))
        }
        Loaded::Capacity(_) | Loaded::Comparison(_) if tables => Err(SimError::Unusable {
            path: config.path.clone(),
            why: "--csv and --hdr are for reports of runs; --html takes this one".to_owned(),
        }),
        Loaded::Capacity(_) | Loaded::Comparison(_) => Ok(()),
    }
}
