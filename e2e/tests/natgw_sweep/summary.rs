//! What was done and what came of it, in one line for each scenario and a total.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::natgw_sweep::scenario::Scenario;

/// Of one scenario, or of all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    pub writes: u64,
    pub calls: u64,
    pub runs: u64,
    pub kills: u64,
    /// Faults that happened.
    pub faults: u64,
    /// Faults whose call never came.
    pub unmet: u64,
    /// Faults that there are.
    pub possible: u64,
    pub looks: u64,
    pub violations: u64,
}

impl Count {
    fn add(&mut self, other: Count) {
        self.writes += other.writes;
        self.calls += other.calls;
        self.runs += other.runs;
        self.kills += other.kills;
        self.faults += other.faults;
        self.unmet += other.unmet;
        self.possible += other.possible;
        self.looks += other.looks;
        self.violations += other.violations;
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count { writes, calls, runs, kills, faults, unmet, possible, looks, violations } = self;
        write!(
            f,
            "{runs} runs ({writes} writes, {calls} calls undisturbed): {kills} kills, {faults} faults of {possible}, \
             {unmet} never met; {looks} looks, {violations} violations"
        )
    }
}

/// Of all scenarios.
#[derive(Default)]
pub struct Summary(BTreeMap<Scenario, Count>);

impl Summary {
    /// Of one scenario.
    pub fn of(&mut self, scenario: Scenario) -> &mut Count {
        self.0.entry(scenario).or_default()
    }

    /// Prints the lines, and returns the total.
    pub fn print(&self, share: &str, took: Duration) -> Count {
        let mut total = Count::default();
        for (scenario, count) in &self.0 {
            println!("sweep, {}: {count}", scenario.name());
            total.add(*count);
        }
        println!("sweep, all: {total}; {share}; {took:.0?}");
        total
    }
}
