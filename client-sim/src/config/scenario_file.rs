//! Scenarios as TOML files.

use std::{fs, path::Path, time::Duration};

use serde::Deserialize;

use super::{
    Balancing, Behaviour, Burst, Group, PictureSource, Policy, Rogue, Scenario, ServerName, Size,
};
use crate::{heartbeat::SHORTEST, schedule::Phases};

/// Length of the measured part and of the one before it, in seconds, unless the file names them.
const SECONDS: f64 = 10.0;
/// See [`SECONDS`].
const WARMUP_SECONDS: f64 = 2.0;

/// Cameras that start together on a ramp, and milliseconds to the next ones, unless given: the
/// start-up of the usual comparison of gRPC streaming servers.
pub const RAMP_CAMERAS: u32 = 10;
/// See [`RAMP_CAMERAS`].
pub const RAMP_EVERY: Duration = Duration::from_millis(50);

/// Most cameras of one run; each is a TCP connection, and ports and file handles run out near it.
pub const MAX_CAMERAS: u32 = 20_000;

/// Fewest frames per second of one camera: one in 100 s.
pub const MIN_FPS: f64 = 0.01;

/// Most frames per second of one camera, far above any camera's.
pub const MAX_FPS: f64 = 1000.0;

/// Longest duration taken, in seconds: a week.
pub const MAX_SECONDS: f64 = 7.0 * 24.0 * 3600.0;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    #[serde(default = "default_seconds")]
    seconds: f64,
    #[serde(default = "default_warmup_seconds")]
    warmup_seconds: f64,
    #[serde(default)]
    seed: Option<u64>,
    #[serde(default)]
    phase: Phase,
    ramp_cameras: Option<u32>,
    ramp_every_ms: Option<f64>,
    #[serde(default)]
    heartbeat_seconds: f64,
    #[serde(default)]
    addr: Vec<String>,
    balance: Option<Policy>,
    #[serde(rename = "group", default)]
    groups: Vec<GroupEntry>,
    #[serde(rename = "rogue", default)]
    rogues: Vec<RogueEntry>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Phase {
    #[default]
    Even,
    Random,
    Aligned,
    Ramp,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupEntry {
    name: String,
    cameras: u32,
    fps: f64,
    size: Option<String>,
    images: Option<String>,
    video: Option<String>,
    #[serde(default)]
    jitter_ms: f64,
    #[serde(default)]
    budget_ms: u32,
    arrive_seconds: Option<f64>,
    #[serde(default)]
    arrive_over_seconds: f64,
    leave_seconds: Option<f64>,
    #[serde(rename = "burst", default)]
    bursts: Vec<BurstEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BurstEntry {
    at_seconds: f64,
    seconds: f64,
    fps: f64,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct RogueEntry {
    behaviour: Behaviour,
    #[serde(default = "one")]
    clients: u32,
    #[serde(default)]
    arrive_seconds: f64,
    leave_seconds: Option<f64>,
}

fn default_seconds() -> f64 {
    SECONDS
}

fn default_warmup_seconds() -> f64 {
    WARMUP_SECONDS
}

fn one() -> u32 {
    1
}

/// Reads a scenario. Folders and videos are relative to the file. The error is one line that names
/// the file and the key.
pub fn read_scenario(path: &Path) -> Result<Scenario, String> {
    let text = fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    parse(&text, folder).map_err(|why| format!("{}: {why}", path.display()))
}

fn parse(text: &str, folder: &Path) -> Result<Scenario, String> {
    let file: File = toml::from_str(text).map_err(|error| one_line(text, &error))?;
    let phases = phases(&file)?;
    let groups: Vec<Group> =
        file.groups.into_iter().map(|entry| group(entry, folder)).collect::<Result<_, _>>()?;
    if groups.is_empty() {
        return Err("no [[group]]: a scenario needs at least one group of cameras".to_owned());
    }
    let cameras: u64 = groups.iter().map(|group| u64::from(group.cameras)).sum();
    if cameras > u64::from(MAX_CAMERAS) {
        return Err(format!("{cameras} cameras in all, at most {MAX_CAMERAS}"));
    }
    let rogues = file.rogues.into_iter().map(rogue).collect::<Result<_, _>>()?;
    let measured = seconds("seconds", file.seconds)?;
    if measured.is_zero() {
        return Err("seconds: must be more than 0".to_owned());
    }
    let warmup = seconds("warmup_seconds", file.warmup_seconds)?;
    let base = Scenario::uniform(1, 1.0, warmup, measured);
    let seed = file.seed.unwrap_or(base.seed);
    let heartbeat = seconds("heartbeat_seconds", file.heartbeat_seconds)
        .and_then(|every| heartbeat(every).map_err(|why| format!("heartbeat_seconds: {why}")))?;
    let (servers, balance) = (servers(&file.addr)?, file.balance);
    let name = file.name;
    Ok(Scenario { name, groups, rogues, phases, heartbeat, seed, servers, balance, ..base })
}

/// The servers, checked as on the command line.
fn servers(texts: &[String]) -> Result<Vec<ServerName>, String> {
    let name = |text: &String| text.parse().map_err(|why| format!("addr {text:?}: {why}"));
    let names: Vec<ServerName> = texts.iter().map(name).collect::<Result<_, _>>()?;
    Balancing::of(names.clone(), None).map_err(|why| format!("addr: {why}"))?;
    Ok(names)
}

/// The parser's complaint with its place, without its drawing of it.
fn one_line(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map(|span| 1 + text[..span.start].matches('\n').count());
    let place = line.map_or_else(String::new, |line| format!("line {line}: "));
    format!("{place}{}", error.message().replace('\n', " "))
}

fn phases(file: &File) -> Result<Phases, String> {
    let ramp_is_set = file.ramp_cameras.is_some() || file.ramp_every_ms.is_some();
    if ramp_is_set && file.phase != Phase::Ramp {
        return Err("ramp_cameras and ramp_every_ms need phase = \"ramp\"".to_owned());
    }
    Ok(match file.phase {
        Phase::Even => Phases::Even,
        Phase::Random => Phases::Random,
        Phase::Aligned => Phases::Aligned,
        Phase::Ramp => Phases::Ramp {
            cameras: match file.ramp_cameras {
                Some(0) => return Err("ramp_cameras: must be at least 1".to_owned()),
                cameras => cameras.unwrap_or(RAMP_CAMERAS),
            },
            every: match file.ramp_every_ms {
                Some(ms) => seconds("ramp_every_ms", ms / 1e3)?,
                None => RAMP_EVERY,
            },
        },
    })
}

fn group(entry: GroupEntry, folder: &Path) -> Result<Group, String> {
    let name = entry.name.clone();
    let of_group = |why: String| format!("group {name:?}: {why}");
    check_group(&entry).map_err(of_group)?;
    let pictures = pictures(&entry, folder).map_err(of_group)?;
    let time = |key, value| seconds(key, value).map_err(of_group);
    let burst = |burst: BurstEntry| -> Result<Burst, String> {
        Ok(Burst {
            at: time("burst.at_seconds", burst.at_seconds)?,
            length: time("burst.seconds", burst.seconds)?,
            fps: fps("burst.fps", burst.fps).map_err(of_group)?,
        })
    };
    let mut bursts: Vec<Burst> = entry.bursts.into_iter().map(burst).collect::<Result<_, _>>()?;
    bursts.sort_by_key(|burst| burst.at);
    if bursts.windows(2).any(|pair| pair[0].at + pair[0].length > pair[1].at) {
        return Err(of_group("two bursts overlap".to_owned()));
    }
    let arrive = entry.arrive_seconds.map(|value| time("arrive_seconds", value)).transpose()?;
    let leave = entry.leave_seconds.map(|value| time("leave_seconds", value)).transpose()?;
    Ok(Group {
        cameras: entry.cameras,
        fps: entry.fps,
        jitter: time("jitter_ms", entry.jitter_ms / 1e3)?,
        pictures,
        budget_ms: entry.budget_ms,
        arrive,
        arrive_over: time("arrive_over_seconds", entry.arrive_over_seconds)?,
        leave,
        bursts,
        name,
    })
}

fn check_group(entry: &GroupEntry) -> Result<(), String> {
    if entry.cameras == 0 {
        return Err("cameras: must be at least 1".to_owned());
    }
    fps("fps", entry.fps)?;
    if entry.jitter_ms >= 1e3 / entry.fps {
        let period = 1e3 / entry.fps;
        return Err(format!("jitter_ms: must be less than a frame period, {period:.1} ms"));
    }
    if entry.arrive_over_seconds > 0.0 && entry.arrive_seconds.is_none() {
        return Err("arrive_over_seconds needs arrive_seconds".to_owned());
    }
    let arrived = entry.arrive_seconds.unwrap_or(0.0) + entry.arrive_over_seconds;
    match entry.leave_seconds {
        Some(leave) if leave <= arrived => {
            Err(format!("leave_seconds: must be after the last camera has come, {arrived} s"))
        }
        _ => Ok(()),
    }
}

fn pictures(entry: &GroupEntry, folder: &Path) -> Result<PictureSource, String> {
    let size: Option<Size> = match &entry.size {
        Some(text) => Some(text.parse().map_err(|why| format!("size: {why}"))?),
        None => None,
    };
    match (&entry.images, &entry.video) {
        (Some(_), Some(_)) => Err("images and video exclude each other".to_owned()),
        (Some(_), None) if size.is_some() => Err("images and size exclude each other".to_owned()),
        (Some(images), None) => Ok(PictureSource::Folder(folder.join(images))),
        (None, Some(video)) => Ok(PictureSource::Video { path: folder.join(video), size }),
        (None, None) => Ok(PictureSource::Drawn(size.unwrap_or_default())),
    }
}

fn rogue(entry: RogueEntry) -> Result<Rogue, String> {
    let of_rogue = |why: String| format!("rogue {:?}: {why}", entry.behaviour.name());
    if entry.clients == 0 {
        return Err(of_rogue("clients: must be at least 1".to_owned()));
    }
    let leave = entry.leave_seconds.map(|value| seconds("leave_seconds", value));
    Ok(Rogue {
        behaviour: entry.behaviour,
        clients: entry.clients,
        arrive: seconds("arrive_seconds", entry.arrive_seconds).map_err(of_rogue)?,
        leave: leave.transpose().map_err(of_rogue)?,
    })
}

fn seconds(key: &str, value: f64) -> Result<Duration, String> {
    if (0.0..=MAX_SECONDS).contains(&value) {
        return Ok(Duration::from_secs_f64(value));
    }
    Err(format!("{key}: must be 0 to {MAX_SECONDS} seconds"))
}

/// How long a stream may be quiet, as settings write it: 0 = for ever.
pub fn heartbeat(every: Duration) -> Result<Option<Duration>, String> {
    if every.is_zero() {
        return Ok(None);
    }
    if every < SHORTEST {
        return Err(format!("must be 0 (never) or at least {} seconds", SHORTEST.as_secs_f64()));
    }
    Ok(Some(every))
}

fn fps(key: &str, value: f64) -> Result<f64, String> {
    if (MIN_FPS..=MAX_FPS).contains(&value) {
        return Ok(value);
    }
    Err(format!("{key}: must be {MIN_FPS} to {MAX_FPS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_example_is_a_scenario() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/building.toml");
        let scenario = read_scenario(&path).unwrap();
        assert_eq!(scenario.cameras(), 8);
        assert_eq!(scenario.groups.len(), 3);
        assert_eq!(scenario.groups[1].bursts.len(), 1);
        assert_eq!(scenario.rogues[0].behaviour, Behaviour::Flood);
    }

    #[test]
    fn the_shortest_scenario_has_the_defaults_of_a_run() {
        let scenario =
            parse("[[group]]\nname = \"\"\ncameras = 3\nfps = 10", Path::new("/s")).unwrap();
        let seconds = Duration::from_secs;
        assert_eq!(scenario, Scenario::uniform(3, 10.0, seconds(2), seconds(10)));
    }

    #[test]
    fn folders_are_relative_to_the_file() {
        let text = "[[group]]\nname = \"a\"\ncameras = 1\nfps = 1\nimages = \"shots\"";
        let scenario = parse(text, Path::new("/s")).unwrap();
        assert_eq!(scenario.groups[0].pictures, PictureSource::Folder("/s/shots".into()));
    }

    #[test]
    fn servers_are_a_list_with_a_policy() {
        let text = "addr = [\"a:1\", \"dns:///b:2\"]\nbalance = \"least_request\"\n\
                    [[group]]\nname = \"\"\ncameras = 1\nfps = 1";
        let scenario = parse(text, Path::new("/s")).unwrap();
        let names: Vec<String> = scenario.servers.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["a:1", "dns:///b:2"]);
        assert_eq!(scenario.balance, Some(Policy::LeastCameras));
    }

    #[test]
    fn heartbeats_are_sent_only_when_asked_for() {
        let group = "[[group]]\nname = \"\"\ncameras = 1\nfps = 1";
        for (seconds, every) in [("0", None), ("0.25", Some(250)), ("30", Some(30_000))] {
            let text = format!("heartbeat_seconds = {seconds}\n{group}");
            let scenario = parse(&text, Path::new("/s")).unwrap();
            assert_eq!(scenario.heartbeat, every.map(Duration::from_millis));
        }
    }

    #[test]
    fn mistakes_name_their_key() {
        let group = "[[group]]\nname = \"a\"\ncameras = 1\nfps = 10\n";
        for (text, part) in [
            ("", "at least one group"),
            ("secnds = 3", "line 1: unknown field `secnds`"),
            ("[[group]]\nname = \"a\"\nfps = 10", "missing field `cameras`"),
            ("[[group]]\nname = \"a\"\ncameras = 0\nfps = 10", "group \"a\": cameras: must be"),
            ("[[group]]\nname = \"a\"\ncameras = 1\nfps = 0", "group \"a\": fps: must be 0.01"),
            (&format!("seconds = 0\n{group}"), "seconds: must be more than 0"),
            (&format!("seconds = nan\n{group}"), "seconds: must be 0 to"),
            (&format!("heartbeat_seconds = -1\n{group}"), "heartbeat_seconds: must be 0 to"),
            (
                &format!("heartbeat_seconds = 1e-3\n{group}"),
                "heartbeat_seconds: must be 0 (never) or at least 0.01 seconds",
            ),
            (&format!("addr = [\"a:1\", \"a:1\"]\n{group}"), "addr: a:1 is there twice"),
            (&format!("addr = [\"a:1\", \"\"]\n{group}"), "addr \"\": an address is empty"),
            (&format!("addr = \"a:1\"\n{group}"), "line 1: invalid type"),
            (&format!("balance = \"fair\"\n{group}"), "line 1: unknown variant `fair`"),
            (&format!("phase = \"odd\"\n{group}"), "line 1: unknown variant `odd`"),
            (&format!("ramp_cameras = 3\n{group}"), "need phase = \"ramp\""),
            (&format!("{group}jitter_ms = 100"), "less than a frame period, 100.0 ms"),
            (&format!("{group}size = \"big\""), "size: write WIDTHxHEIGHT"),
            (&format!("{group}images = \"a\"\nvideo = \"b\""), "exclude each other"),
            (&format!("{group}arrive_seconds = 5\nleave_seconds = 5"), "leave_seconds: must be"),
            (&format!("{group}arrive_over_seconds = 5"), "needs arrive_seconds"),
            (
                &format!(
                    "{group}burst = [{{ at_seconds = 1, seconds = 2, fps = 30 }}, \
                     {{ at_seconds = 2, seconds = 2, fps = 30 }}]"
                ),
                "two bursts overlap",
            ),
            (&format!("{group}[[rogue]]\nbehaviour = \"rude\""), "unknown variant `rude`"),
            (
                &format!("{group}[[rogue]]\nbehaviour = \"flood\"\nclients = 0"),
                "rogue \"flood\": clients: must be at least 1",
            ),
        ] {
            let why = parse(text, Path::new("")).unwrap_err();
            assert!(why.contains(part) && why.lines().count() == 1, "{text:?} gave {why:?}");
        }
    }
}
