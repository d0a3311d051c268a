//! What `client-sim report`, `compare` and `merge` do: read, work out, print, write.

use std::path::Path;

use super::{
    compare::{Side, compare},
    files::{Loaded, load, text_of, write, write_all, write_csv, write_hdr, write_html},
    hdr,
    html::Document,
    merge::{Options, Part, merge},
    schema::{Report, Verdict},
    write_json,
};
use crate::{
    config::{CompareConfig, JsonTarget, MergeConfig, ReportConfig},
    error::SimError,
    print, say,
};

/// Shows a report again.
pub fn show(config: &ReportConfig) -> Result<(), SimError> {
    config.files.check()?;
    let loaded = load(&config.path)?;
    let tables = config.files.csv.is_some() || config.files.hdr.is_some();
    if tables && !matches!(loaded, Loaded::Run(_)) {
        let why = "--csv and --hdr are for reports of runs; --html takes this one".to_owned();
        return Err(SimError::Unusable { path: config.path.clone(), why });
    }
    if let Some(path) = &config.files.html {
        write_html(&loaded.document(), path)?;
    }
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
        Loaded::Capacity(report) => print(&crate::capacity::table_of(report)),
        Loaded::Comparison(comparison) => print(&comparison.table()),
    }
}

/// Holds reports against the first of them.
pub fn hold_against(config: &CompareConfig) -> Result<(), SimError> {
    if let Some(target) = &config.json {
        target.check()?;
    }
    let mut sides = Vec::new();
    for entry in &config.entries {
        if entry.paths.is_empty() {
            return Err(SimError::Compare(format!("{}= names no file", entry.label)));
        }
        let mut reports = Vec::new();
        for path in &entry.paths {
            reports.push((path.display().to_string(), load(path)?));
        }
        sides.push(Side { label: entry.label.clone(), reports });
    }
    let comparison = compare(&sides).map_err(SimError::Compare)?;
    if let Some(path) = &config.html {
        write_html(&Document::Comparison(&comparison), path)?;
    }
    tell(&comparison.table(), config.json.as_ref())?;
    config.json.as_ref().map_or(Ok(()), |target| write_json(&comparison, target))
}

/// Prints a table, beside JSON on standard output on standard error.
fn tell(table: &str, json: Option<&JsonTarget>) -> Result<(), SimError> {
    if json == Some(&JsonTarget::Stdout) {
        say(table.trim_end());
        Ok(())
    } else {
        print(table)
    }
}

/// Makes one report of several; its verdict. Logs of histograms have none.
pub fn merge_files(config: &MergeConfig) -> Result<Option<Verdict>, SimError> {
    config.files.check()?;
    if let Some(target) = &config.json {
        target.check()?;
    }
    let logs = config.paths.iter().filter(|path| is_log(path)).count();
    if logs == config.paths.len() {
        return merge_logs(config).map(|()| None);
    }
    if logs > 0 {
        let why = "reports and logs of histograms cannot be mixed".to_owned();
        return Err(SimError::Merge(why));
    }
    let report = merge_reports(config)?;
    tell(&report.table(config.per_camera), config.json.as_ref())?;
    if let Some(target) = &config.json {
        write_json(&report, target)?;
    }
    write_all(&report, &config.files)?;
    Ok(Some(report.verdict))
}

fn merge_reports(config: &MergeConfig) -> Result<Report, SimError> {
    let mut reports = Vec::new();
    for path in &config.paths {
        match load(path)? {
            Loaded::Run(report) => reports.push((path.display().to_string(), report)),
            Loaded::Capacity(_) | Loaded::Comparison(_) => {
                let why = "only reports of runs can be merged".to_owned();
                return Err(SimError::Unusable { path: path.clone(), why });
            }
        }
    }
    let parts: Vec<Part<'_>> = reports.iter().map(|(name, report)| Part { name, report }).collect();
    let options = Options {
        allow_disjoint: config.allow_disjoint,
        arguments: std::env::args().skip(1).collect(),
    };
    merge(&parts, &options).map_err(SimError::Merge)
}

/// Whether a file is a log of histograms, by its name.
fn is_log(path: &Path) -> bool {
    path.extension()
        .is_some_and(|end| ["hdr", "hlog", "hgrm"].iter().any(|log| end.eq_ignore_ascii_case(log)))
}

/// Adds up logs of histograms.
fn merge_logs(config: &MergeConfig) -> Result<(), SimError> {
    let Some(target) = &config.files.hdr else {
        let why = "logs of histograms are merged into another one: name it with --hdr FILE";
        return Err(SimError::Merge(why.to_owned()));
    };
    if config.json.is_some() || config.files.html.is_some() || config.files.csv.is_some() {
        let why = "logs of histograms hold no report: only --hdr can be written from them";
        return Err(SimError::Merge(why.to_owned()));
    }
    let mut whole: Option<hdr::Interval> = None;
    for path in &config.paths {
        let unusable = |why| SimError::Unusable { path: path.clone(), why };
        let mut intervals = hdr::parse(&text_of(path)?).map_err(unusable)?.into_iter();
        let mut file = intervals.next().expect("a log that was read has an interval");
        for interval in intervals {
            file.add(&interval).map_err(unusable)?;
        }
        match &mut whole {
            None => whole = Some(file),
            Some(whole) if config.allow_disjoint || whole.overlaps(&file) => {
                whole.add(&file).map_err(unusable)?;
            }
            Some(_) => {
                return Err(SimError::Merge(format!(
                    "{} was not recorded at the same time as those before it; --allow-disjoint \
                     merges it all the same",
                    path.display()
                )));
            }
        }
    }
    let whole = whole.expect("the command line names at least one log");
    write(target, hdr::log(std::slice::from_ref(&whole)).as_bytes())?;
    let ms = |quantile| whole.histogram.value_at_quantile(quantile) as f64 / 1e3;
    print(&format!(
        "{} answers in {:.0} s: p50 {:.1}, p95 {:.1}, p99 {:.1}, max {:.1} ms\n",
        whole.histogram.len(),
        whole.length.as_secs_f64(),
        ms(0.5),
        ms(0.95),
        ms(0.99),
        ms(1.0),
    ))
}
