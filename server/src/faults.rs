//! What goes wrong on purpose, so that tests can see what a fault costs. A server is built without a way to
//! ask for it; the feature `faults` adds the flag `--fault`.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The frame of a worker that [`Faults::Hang`] strikes: late enough that the load runs by then.
const HANGING_FRAME: u64 = 20;

/// A stage that can fail on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the stages are named")]
pub enum Stage {
    Decode,
    Inference,
    Postprocess,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Faults {
    /// Nothing.
    #[default]
    None,
    /// A panic in this stage over every so manieth frame of a worker.
    Panic(Stage, u64),
    /// One inference of a worker that takes so long.
    Hang(Duration),
}

impl Faults {
    /// Strikes, if it is this frame's turn in this stage. `frame` counts the frames of one worker, from 1.
    ///
    /// # Panics
    /// On purpose.
    pub fn strike(self, stage: Stage, frame: u64) {
        match self {
            Self::Panic(at, every) if at == stage && frame.is_multiple_of(every) => {
                std::panic::panic_any(format!("a fault on purpose in {stage:?}"));
            }
            Self::Hang(time) if stage == Stage::Inference && frame == HANGING_FRAME => {
                std::thread::sleep(time);
            }
            _ => {}
        }
    }
}

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no fault; write panic-decode:3 or hang-inference:60");
        let (name, number) = text.split_once(':').ok_or_else(wrong)?;
        let number = number.parse::<u64>().ok().filter(|&n| n > 0).ok_or_else(wrong)?;
        match name {
            "panic-decode" => Ok(Self::Panic(Stage::Decode, number)),
            "panic-inference" => Ok(Self::Panic(Stage::Inference, number)),
            "panic-postprocess" => Ok(Self::Panic(Stage::Postprocess, number)),
            "hang-inference" => Ok(Self::Hang(Duration::from_secs(number))),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Panic(stage, every) => {
                let stage = match stage {
                    Stage::Decode => "decode",
                    Stage::Inference => "inference",
                    Stage::Postprocess => "postprocess",
                };
                write!(f, "panic-{stage}:{every}")
            }
            Self::Hang(time) => write!(f, "hang-inference:{}", time.as_secs()),
        }
    }
}

impl Serialize for Faults {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Faults {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_written_with_a_number() {
        assert_eq!("panic-decode:3".parse(), Ok(Faults::Panic(Stage::Decode, 3)));
        assert_eq!("hang-inference:60".parse(), Ok(Faults::Hang(Duration::from_mins(1))));
        for text in
            ["panic-decode:3", "panic-inference:1", "panic-postprocess:9", "hang-inference:60"]
        {
            let faults: Faults = text.parse().expect("a fault");
            assert_eq!(faults.to_string(), text);
            // As flags pass through the layers of settings.
            let layered = serde_json::to_string(&faults).expect("serializes");
            assert_eq!(serde_json::from_str::<Faults>(&layered).expect("parses"), faults);
        }
        for bad in ["", "panic-decode", "panic-decode:0", "panic-lunch:1", "hang-inference:x"] {
            assert!(bad.parse::<Faults>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_fault_strikes_only_its_stage_and_turn() {
        let faults = Faults::Panic(Stage::Inference, 3);
        faults.strike(Stage::Decode, 3);
        faults.strike(Stage::Inference, 4);
        assert!(std::panic::catch_unwind(|| faults.strike(Stage::Inference, 6)).is_err());
        Faults::None.strike(Stage::Inference, 3);
    }
}
