//! What is explored, from where, and what was seen on the way.

use super::environment::{Alphabet, Event};
use super::flaw::Flaw;
use super::world::{Ip, World};
use crate::config::Config;

/// What is explored.
pub struct Bounds {
    pub config: Config,
    pub nodes: usize,
    pub alphabet: Alphabet,
    /// How many disturbances there may be in all; None for any number.
    pub disturbances: Option<usize>,
    pub start: Start,
    pub flaw: Flaw,
}

/// Where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With no label anywhere.
    Nothing,
    /// With each way to label the Nodes.
    Labels,
    /// With gateways that are set up, one for each floating IP, and the route at the oldest.
    Gateways,
}

impl Start {
    pub fn worlds(self, nodes: usize) -> Vec<World> {
        let mut worlds = vec![World::new(nodes)];
        for i in 0..nodes as u8 {
            let labelled = |world: &World, ip: Ip| {
                let mut world = *world;
                Event::Label(i, Some(ip)).happen(&mut world);
                world
            };
            match (self, Ip::ALL.get(usize::from(i))) {
                (Start::Labels, _) => {
                    let more = worlds.iter().flat_map(|world| Ip::ALL.map(|ip| labelled(world, ip)));
                    worlds.extend(more.collect::<Vec<_>>());
                }
                (Start::Gateways, Some(ip)) => worlds = vec![labelled(&worlds[0], *ip).with_gateway(i)],
                _ => {}
            }
        }
        worlds
    }
}

/// What happened on the way: a proof about nothing would show here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub states: usize,
    pub worlds: usize,
    pub transitions: usize,
    /// The longest way to a state.
    pub depth: u32,
    /// The most walks that a world needs to come to rest.
    pub walks_to_rest: u32,
    pub crashes: usize,
    pub refused: usize,
    pub route_moves: usize,
    /// Moves of the route to a Node that had changed since the look: the next walk corrects them.
    pub overtaken: usize,
    pub teardowns: usize,
    pub failures: usize,
}
