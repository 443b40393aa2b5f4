//! Where it all ends, when nobody disturbs: from every world that was reached.

use std::collections::HashMap;

use super::act::Result as Answer;
use super::explore::{Explorer, IDLE, Step};
use super::law;

impl Explorer {
    /// From every world, with nobody to disturb it and Jobs that succeed: a bounded number of walks to the wanted end.
    pub fn converge(&mut self) -> Step<()> {
        let mut walks_left: HashMap<u32, u32> = HashMap::new();
        for at in 0..self.ways.len() as u32 {
            let (start, walk) = self.ways[at as usize].state;
            if walk != IDLE {
                continue;
            }
            let mut chain = Vec::new();
            let mut world = start;
            let mut left = loop {
                if let Some(left) = walks_left.get(&world) {
                    break *left;
                }
                if chain.len() > 200 {
                    return Err(("no end in sight though nobody disturbs".to_owned(), at));
                }
                match self.quiet(world) {
                    Some((walked, next)) => {
                        chain.push((world, walked));
                        world = next;
                    }
                    None => {
                        law::in_the_end(self.worlds.get(world)).map_err(|why| (why, at))?;
                        law::at_rest(&self.bounds.config, self.worlds.get(world)).map_err(|why| (why, at))?;
                        walks_left.insert(world, 0);
                        break 0;
                    }
                }
            };
            for (world, walked) in chain.into_iter().rev() {
                left += u32::from(walked);
                walks_left.insert(world, left);
            }
            self.seen.walks_to_rest = self.seen.walks_to_rest.max(left);
        }
        Ok(())
    }

    /// The world after one whole walk, or after one event where natgw has nothing to do; None where nothing is left.
    fn quiet(&mut self, world: u32) -> Option<(bool, u32)> {
        let here = *self.worlds.get(world);
        let plan = self.plan(world);
        let mut there = here;
        if plan == IDLE {
            self.bounds.alphabet.quiet(&here)?.happen(&mut there);
            return Some((false, self.worlds.of(there)));
        }
        let mut acts = self.walks.get(plan).acts.clone();
        while !acts.is_empty() {
            let act = acts.remove(0);
            match act.apply(&mut there, 0, self.bounds.flaw) {
                Answer::Done => {}
                Answer::Then(rest) => acts.insert(0, rest),
                Answer::Outdated => acts.retain(|other| !act.is_shared() && other.node() != act.node()),
            }
        }
        Some((true, self.worlds.of(there)))
    }
}
