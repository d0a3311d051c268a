//! The results page, from the stored results of all benches.

use std::{fmt::Write as _, fs, path::Path};

use crate::{
    cli::ResultsArgs,
    error::{BenchError, io_error},
    machine::Facts,
    report::{Report, Verdict},
    table,
};

/// The benches in the order of the page.
pub const BENCHES: [&str; 8] =
    ["ceiling", "stages", "boxes", "server", "neighbour", "overload", "idle", "rtt"];

/// Writes the page.
///
/// # Errors
/// When there are no results, or a file cannot be read or written.
pub fn run(args: &ResultsArgs) -> Result<(), BenchError> {
    let path = |name: &str| args.out_dir.join(format!("{name}.json"));
    let stored: Vec<_> = BENCHES.iter().map(|name| path(name)).filter(|p| p.is_file()).collect();
    if stored.is_empty() {
        return Err(BenchError::Setup(format!(
            "no results in {}; run a bench first, such as `make bench-ceiling`, or `make bench` for all",
            args.out_dir.display()
        )));
    }
    let reports = stored.iter().map(|path| Report::read(path)).collect::<Result<Vec<_>, _>>()?;
    write(&args.page, &page(&reports))
}

fn write(path: &Path, text: &str) -> Result<(), BenchError> {
    fs::write(path, text).map_err(io_error(format!("cannot write {}", path.display())))
}

fn page(reports: &[Report]) -> String {
    let mut out = "# Measurements\n\nWritten by `make bench`; do not edit. Run the commands from the \
                   repository's root after `make setup` and `cargo build --release`.\n\n\
                   Machines drift by a third within an hour and stand still now and then. Therefore \
                   things are compared only within one run, in turn; the reference is taken right \
                   before and right after each trial; and the median of the trials counts. A cell shows \
                   the median and, in parentheses, every trial. Marks on slowest answers are judged by \
                   the majority of the trials, all others by the median.\n"
        .to_owned();
    let judged = |verdict| {
        reports.iter().flat_map(|r| &r.marks).filter(|mark| mark.verdict == verdict).count()
    };
    let (passed, failed) = (judged(Verdict::Pass), judged(Verdict::Fail));
    let _ = writeln!(out, "\nMarks: {passed} passed, {failed} failed.");
    let Some(first) = reports.first() else { return out };
    let _ = write!(out, "\n{}", facts(&first.machine));
    for report in reports {
        let _ = write!(out, "\n{}", table::markdown(report));
        if report.machine != first.machine {
            let _ = write!(out, "\nOn another machine or version:\n\n{}", facts(&report.machine));
        }
    }
    out
}

fn facts(machine: &Facts) -> String {
    let rows = [
        ("CPU", format!("{}, {} cores used", machine.cpu, machine.cores)),
        ("memory", format!("{:.1} GiB", machine.ram_mib as f64 / 1024.0)),
        ("kernel", machine.kernel.clone()),
        ("Vedette", machine.vedette.clone()),
        ("compiler", machine.rustc.clone()),
        ("ONNX Runtime", machine.onnxruntime.clone()),
    ];
    let mut out = "| machine | |\n|---|---|\n".to_owned();
    for (name, value) in rows {
        let _ = writeln!(out, "| {name} | {value} |");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Cell, Mark, Table};

    fn report(bench: &str) -> Report {
        Report {
            bench: bench.into(),
            command: format!("vedette-bench {bench}"),
            date: "2024-03-01 00:00 UTC".into(),
            quick: false,
            machine: Facts::read(Path::new("/nonexistent")),
            reading: vec!["How to read it.".into()],
            tables: vec![Table {
                title: "T".into(),
                header: vec!["a".into()],
                rows: vec![vec![Cell::trials([1.0, 3.0, 2.0], 1)]],
            }],
            marks: vec![Mark::at_least("a", 9.0, &[1.0], 1)],
        }
    }

    #[test]
    fn the_page_holds_command_figures_and_verdicts() {
        let folder = tempfile::tempdir().expect("folder");
        let args =
            ResultsArgs { out_dir: folder.path().into(), page: folder.path().join("page.md") };
        let error = run(&args).expect_err("nothing there").to_string();
        assert!(error.contains("make bench"), "{error}");
        for bench in ["idle", "ceiling"] {
            report(bench).write(&folder.path().join(format!("{bench}.json"))).expect("writes");
        }
        run(&args).expect("writes");
        let page = fs::read_to_string(&args.page).expect("reads");
        for part in [
            "## ceiling",
            "`vedette-bench idle`, 2024-03-01",
            "How to read it.",
            "| 2.0 (1.0 3.0 2.0) |",
            "| a >= 9 | 1.0 | **FAIL** |",
            "0 passed, 2 failed",
            "| kernel |",
        ] {
            assert!(page.contains(part), "{part} in\n{page}");
        }
        assert!(page.find("## ceiling") < page.find("## idle"), "in the order of the page");
        assert!(!page.contains("another machine"));
    }
}
