//! Where the parts lie in time, and their bins beside each other.

use std::collections::HashMap;

use super::{Part, sums};
use crate::report::schema::{CameraFigures, PerServerFigures, Timeline};

/// Most bins of a merged timeline: parts that lie further apart are no one run.
const MAX_BINS: usize = 100_000;

/// Where the parts lie.
pub(super) struct Places {
    /// The first beginning.
    pub(super) started_unix_ms: i64,
    /// From the first beginning to the last end.
    pub(super) seconds: f64,
    bin_seconds: f64,
    /// By how many bins each part began after the first.
    offsets: Vec<usize>,
    bins: usize,
}

impl Places {
    /// Lays the parts beside each other by their clocks, each to the nearest bin.
    pub(super) fn of(parts: &[Part<'_>], allow_disjoint: bool) -> Result<Self, String> {
        let started = |part: &Part<'_>| part.report.started_unix_ms;
        let first = parts.iter().map(started).min().unwrap_or(0);
        let after = |part: &Part<'_>| (started(part) - first) as f64 / 1e3;
        if !allow_disjoint {
            overlapping(parts, after)?;
        }
        let bin_seconds = parts.first().map_or(1.0, |part| part.report.timeline.bin_seconds);
        if !(bin_seconds > 0.0 && bin_seconds.is_finite()) {
            return Err("the parts\u{2019} bins have no length".to_owned());
        }
        let offset = |part: &Part<'_>| (after(part) / bin_seconds).round() as usize;
        let offsets: Vec<usize> = parts.iter().map(offset).collect();
        let ends = parts.iter().zip(&offsets);
        let bins = ends.clone().map(|(part, offset)| offset + part.report.timeline.ok.len()).max();
        let bins = bins.unwrap_or(0);
        if bins > MAX_BINS {
            return Err(format!("the parts lie more than {MAX_BINS} bins apart"));
        }
        let seconds = ends
            .map(|(part, offset)| *offset as f64 * bin_seconds + part.report.seconds)
            .fold(0.0, f64::max);
        Ok(Self { started_unix_ms: first, seconds, bin_seconds, offsets, bins })
    }

    /// All parts together, bin by bin.
    pub(super) fn timeline(&self, parts: &[Part<'_>]) -> Timeline {
        let at = |bin: usize| {
            parts.iter().zip(&self.offsets).filter_map(move |(part, offset)| {
                Some((&part.report.timeline, bin.checked_sub(*offset)?))
            })
        };
        let mut whole = Timeline { bin_seconds: self.bin_seconds, ..Timeline::default() };
        for bin in 0..self.bins {
            let sum = |of: fn(&Timeline) -> &Vec<u64>| -> u64 {
                at(bin).filter_map(|(timeline, i)| of(timeline).get(i)).sum()
            };
            let max = |of: fn(&Timeline) -> &Vec<Option<f64>>| {
                at(bin).filter_map(|(timeline, i)| *of(timeline).get(i)?).reduce(f64::max)
            };
            whole.ok.push(sum(|timeline| &timeline.ok));
            whole.not_ok.push(sum(|timeline| &timeline.not_ok));
            whole.unanswered.push(sum(|timeline| &timeline.unanswered));
            whole.p50_ms.push(max(|timeline| &timeline.p50_ms));
            whole.p99_ms.push(max(|timeline| &timeline.p99_ms));
            whole.max_ms.push(max(|timeline| &timeline.max_ms));
            whole.stages_mean_us.push(sums::stages(at(bin).filter_map(|(timeline, i)| {
                Some((*timeline.ok.get(i)?, *timeline.stages_mean_us.get(i)?))
            })));
        }
        whole
    }

    /// All servers, each once by its address.
    pub(super) fn servers(&self, parts: &[Part<'_>]) -> Vec<PerServerFigures> {
        let mut servers: Vec<PerServerFigures> = Vec::new();
        for (part, offset) in parts.iter().zip(&self.offsets) {
            for server in &part.report.servers {
                let mut server = server.clone();
                shift(&mut server.bins_ok, *offset, self.bins);
                match servers.iter_mut().find(|other| other.addr == server.addr) {
                    Some(sum) => sums::add_server(sum, &server),
                    None => servers.push(server),
                }
            }
        }
        servers
    }

    /// All cameras; those that several parts name alike are told apart by the number of their part.
    pub(super) fn cameras(&self, parts: &[Part<'_>], groups: &[Vec<String>]) -> Vec<CameraFigures> {
        let mut named: HashMap<&str, u32> = HashMap::new();
        for camera in parts.iter().flat_map(|part| &part.report.per_camera) {
            *named.entry(&camera.camera_id).or_default() += 1;
        }
        let mut cameras = Vec::new();
        for (index, (part, offset)) in parts.iter().zip(&self.offsets).enumerate() {
            for camera in &part.report.per_camera {
                let mut camera = camera.clone();
                if named.get(camera.camera_id.as_str()).is_some_and(|times| *times > 1) {
                    camera.camera_id = format!("{}@{}", camera.camera_id, index + 1);
                }
                let group = part.report.groups.iter().position(|group| group.name == camera.group);
                if let Some(name) = group.and_then(|group| groups[index].get(group)) {
                    camera.group.clone_from(name);
                }
                shift(&mut camera.bins_max_ms, *offset, self.bins);
                shift(&mut camera.bins_missed, *offset, self.bins);
                cameras.push(camera);
            }
        }
        cameras
    }
}

/// Lays a list of bins into a longer one. One that is empty was left out, and stays so.
fn shift<T: Clone + Default>(list: &mut Vec<T>, offset: usize, length: usize) {
    if !list.is_empty() {
        list.splice(0..0, vec![T::default(); offset]);
        list.resize(length, T::default());
    }
}

/// Least share of the shortest part during which all parts ran: what is merged is judged as one fleet.
const TOGETHER: f64 = 0.5;

/// Whether all parts ran together for long enough.
fn overlapping(parts: &[Part<'_>], after: impl Fn(&Part<'_>) -> f64) -> Result<(), String> {
    let last = parts.iter().max_by(|a, b| after(a).total_cmp(&after(b)));
    let end = |part: &Part<'_>| after(part) + part.report.seconds;
    let first_end = parts.iter().min_by(|a, b| end(a).total_cmp(&end(b)));
    match (last, first_end) {
        (Some(last), Some(first)) if after(last) >= end(first) => Err(format!(
            "{} began {:.0} s after {} had ended, so they did not run at the same time; \
             --allow-disjoint merges them all the same",
            last.name,
            after(last) - end(first),
            first.name
        )),
        (Some(last), Some(first)) => {
            let shortest = parts.iter().map(|part| part.report.seconds).fold(f64::MAX, f64::min);
            let together = end(first) - after(last);
            if together >= TOGETHER * shortest {
                return Ok(());
            }
            Err(format!(
                "all parts ran together for {together:.1} s only, less than half of the shortest \
                 one; --allow-disjoint merges them all the same"
            ))
        }
        _ => Ok(()),
    }
}
