//! Convergence: the end state from each cluster that was reached, without disturbances.

use std::collections::HashMap;

use super::act::Outcome;
use super::explore::{Explorer, IDLE, Step};
use super::law;

impl Explorer {
    /// Checks that each cluster, without further disturbances and with Jobs that succeed, reaches the desired state in
    /// a bounded number of reconciliations.
    pub fn converge(&mut self) -> Step<()> {
        let mut reconciles_left: HashMap<u32, u32> = HashMap::new();
        for at in 0..self.ways.len() as u32 {
            let (start, reconcile) = self.ways[at as usize].state;
            if reconcile != IDLE {
                continue;
            }
            let mut chain = Vec::new();
            let mut cluster = start;
            let mut left = loop {
                if let Some(left) = reconciles_left.get(&cluster) {
                    break *left;
                }
                if chain.len() > 200 {
                    return Err(("does not converge without disturbances".to_owned(), at));
                }
                match self.quiet(cluster) {
                    Some((reconciled, next)) => {
                        chain.push((cluster, reconciled));
                        cluster = next;
                    }
                    None => {
                        let refused = self.bounds.refuses_route_and_role;
                        law::in_the_end(self.clusters.get(cluster), refused).map_err(|why| (why, at))?;
                        if !refused {
                            law::at_rest(&self.bounds.config, self.clusters.get(cluster))
                                .map_err(|why| (why, at))?;
                        }
                        reconciles_left.insert(cluster, 0);
                        break 0;
                    }
                }
            };
            for (cluster, reconciled) in chain.into_iter().rev() {
                left += u32::from(reconciled);
                reconciles_left.insert(cluster, left);
            }
            self.seen.reconciles_to_rest = self.seen.reconciles_to_rest.max(left);
        }
        Ok(())
    }

    /// The number of the cluster after one whole reconciliation (true), or after one event where natgw has nothing to
    /// do (false). None if no event is left.
    fn quiet(&mut self, cluster: u32) -> Option<(bool, u32)> {
        let here = *self.clusters.get(cluster);
        let plan = self.plan(cluster);
        let mut there = here;
        if plan == IDLE {
            self.bounds.alphabet.quiet(&here)?.happen(&mut there);
            return Some((false, self.clusters.of(there)));
        }
        let mut acts = self.reconciles.get(plan).acts.clone();
        while !acts.is_empty() {
            let act = acts.remove(0);
            let outcome = if self.bounds.refuses(act) {
                Outcome::Refused
            } else {
                act.apply(&mut there, 0, self.bounds.flaw)
            };
            match outcome {
                Outcome::Done => {}
                Outcome::Then(rest) => acts.insert(0, rest),
                Outcome::Outdated | Outcome::Refused => {
                    act.prune(&mut acts, outcome == Outcome::Outdated, self.bounds.flaw);
                }
            }
        }
        if self.bounds.refuses_route_and_role && there == here {
            // All remaining acts are refused each time.
            self.bounds.alphabet.quiet(&here)?.happen(&mut there);
        }
        Some((true, self.clusters.of(there)))
    }
}
