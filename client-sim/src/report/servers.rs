//! What each server did, and how cameras came back.

use super::{
    RunFacts,
    schema::{CameraFigures, CameraServerFigures, PerServerFigures, ReconnectFigures},
};
use crate::{
    record::{CameraResult, ServerBook},
    stats::Tally,
};

/// Every server, by its place.
pub(super) fn figures(facts: &RunFacts<'_>) -> Vec<PerServerFigures> {
    let bins = facts.timeline.ok.len();
    let figures = |(place, server): (usize, &super::ServerFacts)| {
        let books = || facts.cameras.iter().filter_map(move |camera| camera.by_server.get(place));
        let sum = |of: fn(&ServerBook) -> u64| books().map(of).sum();
        let here =
            |camera: &&CameraResult| camera.home == Some(place) && camera.figures.away_ms.is_none();
        let mut tally = Tally::default();
        books().for_each(|book| tally.add(&book.tally));
        PerServerFigures {
            addr: server.addr.clone(),
            server: server.info.clone().map(Into::into),
            cameras_first: sum(|book| u64::from(book.first)),
            cameras: facts.cameras.iter().filter(here).count() as u64,
            streams: sum(|book| book.streams),
            refused: sum(|book| book.refused),
            moved_in: sum(|book| book.moved_in),
            moved_out: sum(|book| book.moved_out),
            tally,
            figures: server.times.latency.figures(),
            bins_ok: server.times.ok.iter().copied().take(bins).collect(),
        }
    };
    facts.servers.iter().enumerate().map(figures).collect()
}

/// Names the servers that a camera had to do with.
pub(super) fn of_camera(facts: &RunFacts<'_>, camera: &CameraResult, into: &mut CameraFigures) {
    into.addr = camera.home.map(|home| facts.servers[home].addr.clone());
    let used = |(server, book): (&super::ServerFacts, &ServerBook)| {
        let figures = CameraServerFigures {
            addr: server.addr.clone(),
            streams: book.streams,
            refused: book.refused,
            ok: book.tally.ok,
        };
        (book.streams + book.refused > 0).then_some(figures)
    };
    into.servers = facts.servers.iter().zip(&camera.by_server).filter_map(used).collect();
}

/// How cameras came back, from their own figures; nothing else is filled in.
pub(super) fn comings_back<'a>(
    cameras: impl Iterator<Item = &'a CameraFigures>,
) -> ReconnectFigures {
    let (mut all, mut figures) = (Vec::new(), ReconnectFigures::default());
    for camera in cameras {
        all.extend_from_slice(&camera.back_ms);
        figures.moves += camera.moves;
        figures.away += u64::from(camera.away_ms.is_some());
    }
    all.sort_by(f64::total_cmp);
    figures.back_max_ms = all.last().copied();
    figures.back_p50_ms = all.get(all.len().saturating_sub(1) / 2).copied();
    figures
}
