//! What a rank does when its home server dies, lets it go since it leaves the group, or when another server has joined: it goes
//! on at another home server.
//!
//! Between two steps, [`between_steps`] does so, and within one [`within_step`], which puts again what was put in the step.
//! Both find the next home by [`find_home`], which replays the latest steps there ([`replay`]). [`joined`] goes on at a server
//! that has joined. From the bottom up: [`candidates`], [`replay`], [`find_home`], [`between_steps`], [`within_step`],
//! [`joined`].

mod between_steps;
mod candidates;
mod find_home;
mod joined;
mod replay;
mod within_step;

pub(super) use find_home::DEATHS_MAX;
