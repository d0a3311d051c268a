//! How many connections a fleet opens, and which cameras share one.

use std::{collections::HashSet, sync::atomic::Ordering::Relaxed};

use crate::{
    fake::fake,
    run::{OK, run_against},
};
use client_sim::config::Connections;

#[tokio::test]
async fn as_many_connections_as_were_asked_for_carry_the_cameras_in_turn() {
    for (connections, opened) in [
        (Connections::Shared(1), 1),
        (Connections::Shared(2), 2),
        (Connections::Shared(3), 3),
        (Connections::PerCamera, 4),
        // One without a camera would carry nothing.
        (Connections::Shared(100), 4),
    ] {
        let server = fake(|_, _| OK);
        let report = run_against(&server, |config| config.connections = connections).await;
        assert!(report.passed(), "{connections:?}: {:?}", report.reasons);
        assert_eq!(report.tally.ok, 100);
        // One more asks the server what it is.
        assert_eq!(server.accepted.load(Relaxed), opened + 1, "{connections:?}");

        let peers = server.peers.lock().unwrap();
        let peer = |camera: usize| {
            let streams = &peers[&format!("sim-{:04}", camera + 1)];
            assert_eq!(streams.len(), 1);
            streams[0]
        };
        let different: HashSet<_> = (0..4).map(peer).collect();
        assert_eq!(different.len(), opened, "{connections:?}");
        for camera in opened..4 {
            assert_eq!(peer(camera), peer(camera % opened), "{connections:?}");
        }
    }
}

#[tokio::test]
async fn the_report_says_how_connections_were_shared() {
    for (connections, shared) in [(Connections::Shared(2), Some(2)), (Connections::PerCamera, None)]
    {
        let report = run_against(&fake(|_, _| OK), |config| config.connections = connections).await;
        assert_eq!(report.connections, shared);
        assert_eq!(report.table(false).contains(", 2 connections for all\n"), shared.is_some());
    }
}
