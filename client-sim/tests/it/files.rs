//! Reports as files of other tools: tables, and logs of `HdrHistogram`.

use std::{fs, path::Path, process::Command, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use client_sim::schedule::Phases;
use client_sim::{
    config::Files,
    report::{
        files::{load, timeline_path, write_all, write_csv},
        hdr,
        schema::Report,
    },
};
use hdrhistogram::{
    Histogram,
    serialization::{
        Deserializer,
        interval_log::{IntervalLogIterator, LogEntry},
    },
};

use crate::samples;

/// A table by its columns' names.
fn table(path: &Path) -> (Vec<String>, Vec<Vec<String>>) {
    let mut reader = csv::Reader::from_path(path).unwrap();
    let head = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let row = |record: csv::StringRecord| record.iter().map(str::to_owned).collect();
    let rows = reader.records().map(|record| row(record.unwrap())).collect();
    (head, rows)
}

#[test]
fn tables_hold_what_the_report_holds() {
    let mut report = samples::failing();
    report.per_camera[0].camera_id = "Gate \"A\", north\nside; =1+1".to_owned();
    report.per_camera[1].camera_id = "=HYPERLINK(1)".to_owned();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.csv");
    write_csv(&report, &path).unwrap();

    let (head, rows) = table(&path);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(rows.len(), report.per_camera.len());
    for (row, camera) in rows.iter().zip(json["per_camera"].as_array().unwrap()) {
        for (name, text) in head.iter().zip(row) {
            let value = match name.split_once("warmup_").filter(|(before, _)| before.is_empty()) {
                Some((_, field)) if field.starts_with("excused_") => {
                    &camera["warmup_excused"][&field["excused_".len()..]]
                }
                Some((_, field)) if field != "max_ms" => &camera["warmup"][field],
                _ => match name.strip_prefix("excused_") {
                    Some(field) => &camera["excused"][field],
                    None => &camera[name],
                },
            };
            let expected = match value {
                serde_json::Value::Null => String::new(),
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let number = |text: &str| text.parse::<f64>().ok();
            let same =
                *text == expected || number(text).is_some_and(|n| Some(n) == number(&expected));
            // Spreadsheets must not run a name.
            assert!(same || *text == format!("'{expected}"), "{name}: {text} is not {expected}");
        }
    }
    assert!(rows[1][0].starts_with("'="));

    let (head, rows) = table(&timeline_path(&path));
    let column = |name: &str| head.iter().position(|other| other == name).unwrap();
    let timeline = &report.timeline;
    assert_eq!(rows.len(), timeline.ok.len());
    for (bin, row) in rows.iter().enumerate() {
        assert_eq!(row[column("start_seconds")], bin.to_string());
        assert_eq!(row[column("not_ok")], timeline.not_ok[bin].to_string());
        assert_eq!(row[column("max_ms")].parse().ok(), timeline.max_ms[bin]);
        let inference = timeline.stages_mean_us[bin].map(|means| means.inference);
        assert_eq!(row[column("inference_mean_us")].parse().ok(), inference);
    }
}

#[test]
fn a_log_of_histograms_is_read_by_the_format_s_own_reader() {
    let report = samples::failing();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.hdr");
    let files = Files { hdr: Some(path.clone()), ..Files::default() };
    write_all(&report, &files).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("#[Histogram log format version 1.3]\n"), "{text}");
    let entries: Vec<LogEntry<'_>> =
        IntervalLogIterator::new(text.as_bytes()).map(Result::unwrap).collect();
    let start = Duration::from_millis(u64::try_from(samples::START_UNIX_MS).unwrap());
    assert!(entries.contains(&LogEntry::StartTime(start)), "{entries:?}");
    let Some(LogEntry::Interval(interval)) = entries.last() else { panic!("{entries:?}") };
    assert_eq!(interval.duration(), Duration::from_mins(1));
    let bytes = BASE64.decode(interval.encoded_histogram()).unwrap();
    let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
    assert_eq!(histogram.len(), report.tally.ok);
    for point in &report.percentiles {
        let ms = histogram.value_at_quantile(point.percentile / 100.0) as f64 / 1e3;
        assert!((ms - point.ms).abs() <= point.ms * 0.001, "{point:?}: {ms}");
    }
    let back = hdr::parse(&text).unwrap();
    assert_eq!(back, [hdr::Interval::of(&report).unwrap()]);
}

fn client(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_client-sim")).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Writes a report, and gives back its path.
fn saved(folder: &Path, name: &str, report: &Report) -> String {
    let path = folder.join(name);
    fs::write(&path, serde_json::to_string(report).unwrap()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_report_is_shown_again_from_its_json_and_from_its_page() {
    let folder = tempfile::tempdir().unwrap();
    let report = samples::failing();
    let json = saved(folder.path(), "run.json", &report);
    let page = folder.path().join("run.html");
    let page = page.to_str().unwrap();
    let (code, table, complaint) = client(&["report", &json, "--html", page]);
    assert_eq!((code, complaint.as_str()), (0, ""));
    assert!(table.contains("FAIL (slowest answer 936.8 ms > 100 ms"), "{table}");
    let again = folder.path().join("again.html");
    let (code, ..) = client(&["report", page, "--html", again.to_str().unwrap()]);
    assert_eq!(code, 0);
    assert_eq!(fs::read(page).unwrap(), fs::read(&again).unwrap());
    assert_eq!(load(&again).unwrap(), load(Path::new(&json)).unwrap());
}

#[test]
fn what_cannot_be_read_or_written_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let json = saved(folder.path(), "run.json", &samples::Story::new(1, 1).report());
    let old = folder.path().join("old.json");
    fs::write(&old, r#"{"schema_version": 1}"#).unwrap();
    let old = old.to_str().unwrap();
    let list = format!("{json},{json}");
    for (args, part) in [
        (vec!["report", "/no/such.json"], "cannot read /no/such.json"),
        (vec!["report", old], "schema version 1"),
        (vec!["report", &json, "--html", "/no/such/x.html"], "cannot write /no/such/x.html"),
        (vec!["compare", &json], "2 values"),
        (vec!["compare", &json, "b="], "b= names no file"),
        (vec!["merge", &json, "x.hdr"], "cannot be mixed"),
        (vec!["merge", "/no/x.hdr"], "name it with --hdr"),
        (vec!["merge", &list], "cannot read"),
    ] {
        let (code, out, line) = client(&args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}");
        assert!(line.contains(part) && line.trim_end().lines().count() == 1, "{args:?}: {line}");
    }
}

#[test]
fn reports_are_compared_on_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let runs: Vec<String> = (1..=4)
        .map(|seed| {
            let report = samples::Story { seed, ..samples::Story::new(3, 4) }.report();
            saved(folder.path(), &format!("run{seed}.json"), &report)
        })
        .collect();
    let (code, table, _) = client(&["compare", &runs[0], &runs[1]]);
    assert_eq!(code, 0);
    assert!(table.contains("run1") && !table.contains("CAUTION"), "{table}");
    let repeats = [format!("old={},{}", runs[0], runs[1]), format!("new={},{}", runs[2], runs[3])];
    let json = folder.path().join("comparison.json");
    let json = json.to_str().unwrap();
    let (code, table, _) = client(&["compare", &repeats[0], &repeats[1], "--json", json]);
    assert_eq!(code, 0);
    assert!(table.contains("old (2 runs)"), "{table}");
    let (code, again, _) = client(&["report", json]);
    assert_eq!((code, again), (0, table));
}

#[test]
fn differing_settings_come_before_all_figures() {
    let folder = tempfile::tempdir().unwrap();
    let story = samples::Story::new(4, 5);
    let even = saved(folder.path(), "even.json", &story.report());
    let aligned = samples::Story { phases: Phases::Aligned, ..story };
    let aligned = saved(folder.path(), "aligned.json", &aligned.report());
    let page = folder.path().join("comparison.html");
    let (code, table, _) = client(&["compare", &even, &aligned, "--html", page.to_str().unwrap()]);
    assert_eq!(code, 0);
    assert!(table.starts_with("CAUTION: the entries differ in more than the server"), "{table}");
    assert!(table.contains("! arrival              even  |  aligned"), "{table}");
    let page = fs::read_to_string(page).unwrap();
    let place = |text: &str| page.find(text).unwrap();
    assert!(place("Differing settings that matter: arrival") < place("The figures"));
    let no_repeats = format!("both={even},{aligned}");
    let (code, _, line) = client(&["compare", &even, &no_repeats]);
    assert_eq!(code, 2);
    assert!(line.contains("are no repeats of each other, they differ in arrival"), "{line}");
}
