//! Fleets on several servers: who gets which camera, and what becomes of the cameras of one that ends.

use std::{
    collections::HashMap, future, net::SocketAddr, sync::atomic::Ordering::Relaxed, time::Duration,
};

use tonic::Code;

use crate::{
    fake::{Act, Fake, fake},
    reconnect::Process,
    run::{OK, check_books, config},
};
use client_sim::{
    config::{Balancing, Connections, Policy, Reconnect, RunConfig, ServerName},
    report::schema::{PerServerFigures, Report},
    run,
};

/// Longer than any gap here.
const ANY_GAP: Duration = Duration::from_mins(1);

/// What servers of the project say when a connection has reached its age.
const AGED: &str = "this connection has reached its age (max-connection-age-seconds)";

fn names(addrs: &[SocketAddr]) -> Vec<ServerName> {
    addrs.iter().map(|addr| ServerName::One((*addr).into())).collect()
}

/// 12 cameras of 25 fps that come back, on several servers.
fn fleet(addrs: &[SocketAddr], policy: Policy) -> RunConfig {
    let mut config = config(addrs[0]);
    config.scenario.groups[0].cameras = 12;
    config.reconnect = Reconnect { enabled: true, max_gap: ANY_GAP };
    config.balancing = Balancing::of(names(addrs), Some(policy)).unwrap();
    config
}

async fn started(servers: &[Fake]) -> Vec<SocketAddr> {
    let mut addrs = Vec::new();
    for server in servers {
        addrs.push(server.start().await);
    }
    addrs
}

async fn played(config: &RunConfig) -> Report {
    let report = run::run(config, future::pending()).await.unwrap();
    check_report(&report);
    report
}

/// What holds for every run on several servers.
fn check_report(report: &Report) {
    check_books(report);
    let sum = |of: fn(&PerServerFigures) -> u64| -> u64 { report.servers.iter().map(of).sum() };
    assert_eq!(sum(|server| server.tally.sent), report.tally.sent);
    assert_eq!(sum(|server| server.tally.ok), report.tally.ok);
    assert_eq!(sum(|server| server.tally.lost), report.tally.lost);
    assert_eq!(sum(|server| server.moved_in), sum(|server| server.moved_out));
    assert_eq!(sum(|server| server.moved_in), report.reconnects.moves);
    let slowest = report.servers.iter().filter_map(|server| server.figures.max_ms);
    assert_eq!(slowest.reduce(f64::max), report.figures.max_ms);
    for (bin, ok) in report.timeline.ok.iter().enumerate() {
        assert_eq!(report.servers.iter().map(|server| server.bins_ok[bin]).sum::<u64>(), *ok);
    }
    for camera in &report.per_camera {
        assert_eq!(camera.servers.iter().map(|server| server.ok).sum::<u64>(), camera.tally.ok);
        assert_eq!(camera.back_max_ms, camera.back_ms.iter().copied().reduce(f64::max));
    }
    let largest = report.per_camera.iter().filter_map(|camera| camera.back_max_ms);
    assert_eq!(report.reconnects.back_max_ms, largest.reduce(f64::max));
    assert!(report.reconnects.back_p50_ms <= report.reconnects.back_max_ms);
}

/// An address where nobody listens.
fn nobody() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Cameras by the number of streams that each server saw of them.
fn streams(server: &Fake) -> HashMap<String, usize> {
    let peers = server.peers.lock().unwrap();
    peers.iter().map(|(camera, streams)| (camera.clone(), streams.len())).collect()
}

#[tokio::test]
async fn a_fleet_is_spread_evenly_and_the_report_says_over_whom() {
    for policy in [Policy::RoundRobin, Policy::LeastCameras] {
        let servers = [fake(|_, _| OK), fake(|_, _| OK), fake(|_, _| OK)];
        let addrs = started(&servers).await;
        let report = played(&fleet(&addrs, policy)).await;
        assert!(report.passed(), "{:?}", report.reasons);
        let expected: Vec<String> = addrs.iter().map(ToString::to_string).collect();
        assert_eq!(report.addr, expected.join(", "));
        assert_eq!(report.balance.as_deref(), Some(policy.name()));
        for (place, (server, addr)) in report.servers.iter().zip(&expected).enumerate() {
            assert_eq!(server.addr, *addr);
            assert_eq!((server.cameras_first, server.cameras, server.streams), (4, 4, 4));
            assert_eq!((server.refused, server.moved_in, server.tally.ok), (0, 0, 100));
            assert_eq!(server.server.as_ref().unwrap().version, "9.9.9");
            // Camera i begins at server i mod 3.
            let own = ["sim-0001", "sim-0004", "sim-0007", "sim-0010"];
            let seen = streams(&servers[place]);
            assert_eq!(seen.len(), 4);
            assert_eq!(place == 0, own.iter().all(|camera| seen.contains_key(*camera)));
        }
        let table = report.table(false);
        for addr in &expected {
            assert!(table.lines().any(|line| line.starts_with(addr)), "{table}");
        }
    }
}

#[tokio::test]
async fn failover_uses_the_first_server_alone() {
    let servers = [fake(|_, _| OK), fake(|_, _| OK)];
    let addrs = started(&servers).await;
    let report = played(&fleet(&addrs, Policy::Failover)).await;
    let cameras: Vec<_> = report.servers.iter().map(|server| server.cameras).collect();
    assert_eq!(cameras, [12, 0]);
    assert_eq!(report.servers[1].figures.max_ms, None);
    assert!(streams(&servers[1]).is_empty());
}

#[tokio::test]
async fn each_server_has_a_pool_of_its_own() {
    let servers = [fake(|_, _| OK), fake(|_, _| OK)];
    let addrs = started(&servers).await;
    let mut config = fleet(&addrs, Policy::RoundRobin);
    config.connections = Connections::Shared(2);
    let report = played(&config).await;
    assert!(report.passed(), "{:?}", report.reasons);
    for server in &servers {
        // One more asks the server what it is.
        assert_eq!(server.accepted.load(Relaxed), 2 + 1);
        let peers = server.peers.lock().unwrap();
        let mut shares: HashMap<SocketAddr, usize> = HashMap::new();
        for streams in peers.values() {
            *shares.entry(streams[0]).or_default() += 1;
        }
        assert_eq!(shares.into_values().collect::<Vec<_>>(), [3, 3]);
    }
}

/// One of two servers ends 1 s into the run and is back 1.5 s later.
async fn outage(policy: Policy, change: impl FnOnce(&mut RunConfig)) -> (Report, [Fake; 2]) {
    let servers = [fake(|_, _| OK), fake(|_, _| OK)];
    let (process, addr) = Process::start(&servers[0], None);
    let other = servers[1].start().await;
    let mut config = fleet(&[addr, other], policy);
    config.scenario.measured = Duration::from_secs(4);
    change(&mut config);
    let frames = || servers[0].seen.lock().unwrap().values().map(Vec::len).sum::<usize>();
    let outage = async {
        while frames() < 60 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        process.end();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        Process::start(&servers[0], Some(addr)).0
    };
    let (report, process) = tokio::join!(played(&config), outage);
    process.end();
    (report, servers)
}

#[tokio::test]
async fn the_cameras_of_a_server_that_dies_move_and_the_gap_is_told() {
    for policy in [Policy::RoundRobin, Policy::LeastCameras, Policy::Failover] {
        let (report, _) = outage(policy, |_| ()).await;
        let moved = if policy == Policy::Failover { 12 } else { 6 };
        assert!(report.passed(), "{:?}", report.reasons);
        assert_eq!((report.reconnects.count, report.reconnects.moves), (moved, moved));
        assert_eq!(report.reconnects.away, 0);
        let [first, second] = &report.servers[..] else { panic!("{:?}", report.servers) };
        assert_eq!((first.moved_out, second.moved_in), (moved, moved));
        // Nothing ends their streams on the other one.
        assert_eq!((first.cameras, second.cameras), (0, 12));
        assert!(report.reconnects.back_max_ms >= report.reconnects.back_p50_ms);
        for camera in &report.per_camera {
            assert_eq!(camera.addr.as_ref(), Some(&second.addr));
            assert_eq!(camera.reconnects, camera.moves);
            assert_eq!(camera.back_ms.len() as u64, camera.moves);
            assert_eq!(camera.servers.len() as u64, 1 + camera.moves);
            // One stream ended, and the next was answered at once: no other server was in between.
            assert!(camera.back_max_ms.is_none_or(|ms| ms < 1400.0), "{:?}", camera.back_ms);
            assert_eq!(camera.away_ms, None);
        }
        let table = report.table(false);
        assert!(table.contains(&format!("{moved} to another server")), "{table}");
    }
}

#[tokio::test]
async fn cameras_that_share_connections_move_too() {
    let (report, servers) =
        outage(Policy::RoundRobin, |config| config.connections = Connections::Shared(2)).await;
    assert!(report.passed(), "{:?}", report.reasons);
    assert_eq!(report.reconnects.moves, 6);
    // Those who come use the connections that are there.
    assert_eq!(servers[1].accepted.load(Relaxed), 2 + 1);
}

#[tokio::test]
async fn a_server_that_is_back_is_used_by_the_next_streams() {
    let aged = move |_: &str, k: u64| {
        // On the first server cameras go on; the second asks them to choose again, late in the run.
        if k == 80 { Act::EndInOrder(AGED) } else { OK }
    };
    let servers = [fake(|_, _| OK), fake(aged)];
    let (process, addr) = Process::start(&servers[0], None);
    let other = servers[1].start().await;
    let mut config = fleet(&[addr, other], Policy::LeastCameras);
    config.scenario.measured = Duration::from_secs(5);
    let frames = || servers[0].seen.lock().unwrap().values().map(Vec::len).sum::<usize>();
    let outage = async {
        while frames() < 60 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        process.end();
        tokio::time::sleep(Duration::from_millis(300)).await;
        Process::start(&servers[0], Some(addr)).0
    };
    let (report, process) = tokio::join!(played(&config), outage);
    process.end();
    assert!(report.passed(), "{:?}", report.reasons);
    // All were on the second one; each that chose again went where fewer were.
    let [first, second] = &report.servers[..] else { panic!("{:?}", report.servers) };
    assert_eq!((first.cameras, second.cameras), (6, 6));
    assert_eq!(report.reconnects.away, 0);
}

#[tokio::test]
async fn ageing_keeps_a_fleet_even_and_a_drain_sends_it_elsewhere() {
    for (says, at_first) in [(AGED, None), ("the server is shutting down", Some(0))] {
        let servers =
            [fake(move |_, k| if k == 10 { Act::EndInOrder(says) } else { OK }), fake(|_, _| OK)];
        let addrs = started(&servers).await;
        let report = played(&fleet(&addrs, Policy::LeastCameras)).await;
        assert!(report.passed(), "{:?}", report.reasons);
        let cameras: Vec<_> = report.servers.iter().map(|server| server.cameras).collect();
        // A server that takes cameras is as good as any; one that goes away gets none.
        assert_eq!(cameras, at_first.map_or([6, 6], |first| [first, 12]), "{says}");
        assert_eq!(report.reconnects.count, 6);
    }
}

#[tokio::test]
async fn a_connection_that_was_shared_and_aged_is_not_held_against_its_server() {
    // Streams end after the server has asked for that, as those of the project do.
    let aged = |_: &str, k| if k == 20 { Act::EndInOrder(AGED) } else { OK };
    let servers = [fake(aged), fake(aged)];
    let mut addrs = Vec::new();
    for server in &servers {
        addrs.push(server.start_ageing(Duration::from_millis(500)).await);
    }
    let mut config = fleet(&addrs, Policy::LeastCameras);
    config.connections = Connections::Shared(1);
    let report = played(&config).await;
    assert!(report.passed(), "{:?}", report.reasons);
    let cameras: Vec<_> = report.servers.iter().map(|server| server.cameras).collect();
    assert_eq!((cameras, report.reconnects.moves), (vec![6, 6], 0));
    assert_eq!(report.reconnects.count, 12);
}

#[tokio::test]
async fn a_server_that_turns_cameras_away_is_left_alone() {
    let full = fake(|_, _| Act::Break(Code::ResourceExhausted, "all places are taken"));
    let servers = [full, fake(|_, _| OK)];
    let addrs = started(&servers).await;
    let report = played(&fleet(&addrs, Policy::RoundRobin)).await;
    assert!(report.passed(), "{:?}", report.reasons);
    let [first, second] = &report.servers[..] else { panic!("{:?}", report.servers) };
    assert_eq!((first.streams, first.cameras, second.cameras), (0, 0, 12));
    assert_eq!((first.refused, second.refused), (6, 0));
    assert_eq!(first.tally.sent, first.tally.lost);
    // They had no server before, so they have not moved.
    assert_eq!((report.reconnects.count, report.reconnects.moves), (6, 0));
}

#[tokio::test]
async fn a_run_begins_with_the_servers_that_are_there() {
    let server = fake(|_, _| OK);
    let there = server.start().await;
    let gone = nobody();
    let mut config = fleet(&[gone, there], Policy::RoundRobin);
    config.target.connect = Duration::from_millis(300);
    let report = played(&config).await;
    assert!(report.passed(), "{:?}", report.reasons);
    let [first, second] = &report.servers[..] else { panic!("{:?}", report.servers) };
    assert_eq!((first.cameras, second.cameras, second.cameras_first), (0, 12, 12));
    assert!(first.server.is_none() && report.server.is_some());
    // Without any there is no run.
    let mut config = fleet(&[gone, nobody()], Policy::RoundRobin);
    config.target.connect = Duration::from_millis(300);
    let why = run::run(&config, future::pending()).await.unwrap_err().to_string();
    assert!(why.starts_with(&format!("cannot reach {gone}: ")), "{why}");
}

#[tokio::test]
async fn cameras_that_lose_all_servers_are_away() {
    let mut processes = Vec::new();
    let servers = [fake(|_, _| OK), fake(|_, _| OK)];
    for server in &servers {
        processes.push(Process::start(server, None));
    }
    let addrs: Vec<SocketAddr> = processes.iter().map(|(_, addr)| *addr).collect();
    let mut config = fleet(&addrs, Policy::RoundRobin);
    config.scenario.measured = Duration::from_secs(2);
    let frames = || servers[1].seen.lock().unwrap().values().map(Vec::len).sum::<usize>();
    let end = async {
        while frames() < 60 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for (process, _) in processes {
            process.end();
        }
    };
    let (report, ()) = tokio::join!(played(&config), end);
    assert!(!report.passed());
    assert_eq!((report.reconnects.away, report.reconnects.back_max_ms), (12, None));
    assert!(report.per_camera.iter().all(|camera| camera.away_ms > Some(0.0)));
    assert!(report.servers.iter().all(|server| server.cameras == 0 && server.refused > 0));
    assert!(report.table(false).contains("12 cameras did not come back"));
}

#[tokio::test]
async fn every_address_of_a_name_is_a_server() {
    let server = fake(|_, _| OK);
    let addr = server.start().await;
    let mut config = fleet(&[addr], Policy::LeastCameras);
    let name: ServerName = format!("dns:///localhost:{}", addr.port()).parse().unwrap();
    config.target.connect = Duration::from_millis(300);
    config.target.addr = name.addr().clone();
    config.balancing = Balancing::of(vec![name], None).unwrap();
    let report = played(&config).await;
    assert!(report.passed(), "{:?}", report.reasons);
    // A machine may know localhost by an address of IPv6 too, where nobody listens.
    let used: Vec<_> = report.servers.iter().filter(|server| server.cameras > 0).collect();
    assert_eq!(used.len(), 1);
    assert_eq!((&used[0].addr, used[0].cameras), (&addr.to_string(), 12));

    let name: ServerName = "dns:///no-such-host.invalid:1".parse().unwrap();
    config.balancing = Balancing::of(vec![name], None).unwrap();
    let why = run::run(&config, future::pending()).await.unwrap_err().to_string();
    assert!(why.starts_with("--addr dns:///no-such-host.invalid:1: "), "{why}");
}
