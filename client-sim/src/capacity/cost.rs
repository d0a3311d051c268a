//! What a number of cameras costs: arithmetic on prices that somebody else has to vouch for.

use super::instances::{Instance, is_shipped};
use crate::report::capacity::{CostFigures, FleetCost};

/// Hours of a month, as cloud price lists count: 365 x 24 / 12.
const HOURS_PER_MONTH: f64 = 730.0;

/// What is said wherever a shipped price is used.
pub const SHIPPED_NOTE: &str =
    "prices that come with this tool are from memory and change; check them before use";

/// What the measured machine is called when it has no name.
const NAMELESS: &str = "this server";

/// Prices to apply to a result.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prices {
    /// Kinds of instances.
    pub instances: Vec<Instance>,
    /// Which of them was measured.
    pub measured: Option<String>,
    /// Price of an hour of the measured one and its currency; goes before that of the list.
    pub per_hour: Option<(f64, String)>,
    /// Fleets are priced for 1 to so many instances.
    pub most_instances: u32,
}

impl Prices {
    /// Costs of servers of which the measured one, with so many virtual CPUs, holds `cameras`. Kinds for
    /// which nothing is known are left out, as are those that hold no camera.
    #[must_use]
    pub fn costs(&self, cameras: u32, vcpus: Option<u32>) -> Vec<CostFigures> {
        if cameras == 0 {
            return Vec::new();
        }
        let named = self.instances.iter().find(|i| Some(&i.name) == self.measured.as_ref());
        let measured = self.measured_price(named).map(|(price_per_hour, currency, source)| {
            let name = self.measured.clone().unwrap_or_else(|| NAMELESS.to_owned());
            self.figures(name, price_per_hour, currency, source, (cameras, true))
        });
        let vcpus = named.map(|instance| instance.vcpus).or(vcpus).filter(|vcpus| *vcpus > 0);
        let others = self.instances.iter().filter(|i| Some(&i.name) != self.measured.as_ref());
        let others = others.filter_map(|instance| {
            let scaled = || {
                let cameras = u64::from(cameras) * u64::from(instance.vcpus) / u64::from(vcpus?);
                Some((u32::try_from(cameras).ok().filter(|cameras| *cameras > 0)?, false))
            };
            let counted = instance.cameras.map(|cameras| (cameras, true)).or_else(scaled)?;
            let (name, currency) = (instance.name.clone(), instance.currency.clone());
            let source = instance.origin();
            Some(self.figures(name, instance.price_per_hour, currency, source, counted))
        });
        measured.into_iter().chain(others).collect()
    }

    /// Whether a price is used that came with this tool.
    #[must_use]
    pub fn are_shipped(&self) -> bool {
        let overridden =
            |i: &Instance| self.per_hour.is_some() && Some(&i.name) == self.measured.as_ref();
        self.instances.iter().any(|instance| !overridden(instance) && is_shipped(instance))
    }

    fn measured_price(&self, named: Option<&Instance>) -> Option<(f64, String, String)> {
        match &self.per_hour {
            Some((price, currency)) => Some((*price, currency.clone(), String::new())),
            None => named.map(|i| (i.price_per_hour, i.currency.clone(), i.origin())),
        }
    }

    fn figures(
        &self,
        instance: String,
        price_per_hour: f64,
        currency: String,
        source: String,
        (cameras, measured): (u32, bool),
    ) -> CostFigures {
        let month = price_per_hour * HOURS_PER_MONTH;
        let fleet = |instances: u32| {
            let spare = (instances - 1) * cameras;
            let month = month * f64::from(instances);
            FleetCost {
                instances,
                cameras: instances * cameras,
                cameras_n_plus_1: spare,
                month,
                per_camera_month_n_plus_1: (spare > 0).then(|| month / f64::from(spare)),
            }
        };
        CostFigures {
            instance,
            price_per_hour,
            currency,
            source,
            measured,
            cameras,
            per_camera_month: month / f64::from(cameras),
            fleets: (1..=self.most_instances).map(fleet).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::instances::shipped;

    fn instance(name: &str, vcpus: u32, price_per_hour: f64) -> Instance {
        Instance {
            name: name.into(),
            vcpus,
            price_per_hour,
            currency: "EUR".into(),
            source: "a list".into(),
            date: "2025-01-31".into(),
            cameras: None,
        }
    }

    #[test]
    fn a_price_gives_the_cost_of_a_camera_and_of_fleets_with_one_to_spare() {
        let prices =
            Prices { per_hour: Some((0.1, "USD".into())), most_instances: 3, ..Prices::default() };
        let costs = prices.costs(20, None);
        assert_eq!(costs.len(), 1);
        let cost = &costs[0];
        assert_eq!((cost.instance.as_str(), cost.measured, cost.cameras), (NAMELESS, true, 20));
        assert!((cost.per_camera_month - 3.65).abs() < 1e-9);
        let cameras: Vec<_> =
            cost.fleets.iter().map(|f| (f.instances, f.cameras, f.cameras_n_plus_1)).collect();
        assert_eq!(cameras, [(1, 20, 0), (2, 40, 20), (3, 60, 40)]);
        assert_eq!(cost.fleets[0].per_camera_month_n_plus_1, None);
        assert!((cost.fleets[1].month - 146.0).abs() < 1e-9);
        assert!((cost.fleets[1].per_camera_month_n_plus_1.unwrap() - 7.3).abs() < 1e-9);
        assert!((cost.fleets[2].per_camera_month_n_plus_1.unwrap() - 5.475).abs() < 1e-9);
        assert!(prices.costs(0, None).is_empty() && !prices.are_shipped());
    }

    #[test]
    fn other_kinds_are_scaled_by_their_cores_and_say_so() {
        let mut measured_there = instance("other", 8, 0.4);
        measured_there.cameras = Some(77);
        let instances = vec![
            instance("small", 1, 0.05),
            instance("here", 2, 0.1),
            instance("large", 4, 0.2),
            measured_there,
        ];
        let prices =
            Prices { instances, measured: Some("here".into()), per_hour: None, most_instances: 1 };
        let told = |costs: Vec<CostFigures>| -> Vec<(String, u32, bool)> {
            costs.into_iter().map(|cost| (cost.instance, cost.cameras, cost.measured)).collect()
        };
        let of = |name: &str, cameras, measured| (name.to_owned(), cameras, measured);
        let known = [
            of("here", 37, true),
            of("small", 18, false),
            of("large", 74, false),
            of("other", 77, true),
        ];
        assert_eq!(told(prices.costs(37, Some(16))), known, "the list's cores go first");
        assert_eq!(prices.costs(37, None)[0].source, "a list, 2025-01-31");
        let nameless = Prices { measured: None, ..prices.clone() };
        assert_eq!(told(nameless.costs(37, None)), [of("other", 77, true)]);
        let own_price = Prices { per_hour: Some((1.0, "USD".into())), ..prices };
        let own = &own_price.costs(37, None)[0];
        assert_eq!((own.price_per_hour, own.source.as_str()), (1.0, ""));
        assert_eq!(told(own_price.costs(1, None)).len(), 3, "no camera fits on half an instance");
    }

    #[test]
    fn shipped_prices_are_noticed() {
        let name = shipped()[0].name.clone();
        let only = |per_hour| Prices {
            instances: shipped()[..1].to_vec(),
            measured: Some(name.clone()),
            per_hour,
            most_instances: 1,
        };
        assert!(only(None).are_shipped());
        assert!(!only(Some((0.3, "USD".into()))).are_shipped());
    }
}
