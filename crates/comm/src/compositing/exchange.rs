//! Ranks exchange parts of their pictures, and put them together.

use super::canvas::Canvas;
use super::message::{Layer as Incoming, Outgoing, Planes, length, longest, unpack, write};
use super::pixels::{Pixels, Side};
use super::rounds::{Part, Round, part};
use super::{Layer, Plan};
use crate::collectives::{beside, finish};
use crate::comm::Comm;
use crate::sending::Send;
use crate::spare::Scratch;
use crate::task::Task;
use forebay_core::{Error, ErrorKind, Result};
use std::ops::Range;

/// All of the picture of a rank beyond those that take part in the rounds.
const FOLD: u64 = 1 << 16;
/// A part of a picture, for who puts it together.
const ROUND: u64 = 1 << 17;
/// A part that is put together.
const SHARE: u64 = 1 << 18;

/// Where what is taken comes from: a rank, and its tag.
type From = (u32, u64);

impl Comm {
    /// This rank's share of a band is put together, in rounds.
    pub(super) async fn blend_rounds(&self, task: &Task, plan: &Plan, canvas: &mut Canvas<'_>) -> Result<()> {
        let mut range = 0..canvas.pixels(plan.pixels);
        let (seat, from) = match plan.rounds.part_of(plan.place) {
            Part::Gives(to) => {
                let layer = Outgoing::of(0, (plan.pixels, plan.pixels), canvas.planes(), true);
                let message = self.message(std::slice::from_ref(&layer));
                let mut sends = Vec::new();
                self.send_layer(task, (plan.ranks[to as usize], FOLD), (&message, &layer), &mut sends);
                return finish(sends).await;
            }
            Part::Takes(seat, from) => (seat, from),
        };
        if let Some(from) = from {
            let from = (plan.ranks[from as usize], FOLD);
            self.blend_from(task, plan, (from, Side::Behind), &mut canvas.part(plan.pixels, &range), &mut [])
                .await?;
        }
        for round in plan.rounds.rounds_of(seat) {
            self.blend_round(task, plan, canvas, (&round, &range)).await?;
            range = part(&range, round.mine, round.group.len());
        }
        Ok(())
    }

    async fn blend_round(
        &self,
        task: &Task,
        plan: &Plan,
        canvas: &mut Canvas<'_>,
        (round, range): (&Round, &Range<u32>),
    ) -> Result<()> {
        let (pixels, size) = (plan.pixels, round.group.len());
        let own = part(range, round.mine, size);
        let (mut own, others) = canvas.split(pixels, &own);
        let members: Vec<usize> = (1..size).map(|distance| (round.mine + distance) % size).collect();
        let layers: Vec<Outgoing<'_>> = members
            .iter()
            .map(|member| {
                Outgoing::of(0, (pixels, pixels), others.planes(pixels, &part(range, *member, size)), true)
            })
            .collect();
        let messages: Vec<Scratch<'_>> =
            layers.iter().map(|layer| self.message(std::slice::from_ref(layer))).collect();
        let rank_of = |member: usize| plan.ranks[round.group[member] as usize];
        let mut sends = Vec::new();
        for ((member, layer), message) in members.iter().zip(&layers).zip(&messages) {
            self.send_layer(task, (rank_of(*member), ROUND), (message, layer), &mut sends);
        }
        // Neighbours first, so that between what is there and what comes there is never anything else.
        let before = (0..round.mine).rev().map(|member| (member, Side::Before));
        let behind = (round.mine + 1..size).map(|member| (member, Side::Behind));
        for (member, side) in before.chain(behind) {
            self.blend_from(task, plan, ((rank_of(member), ROUND), side), &mut own, &mut sends).await?;
        }
        finish(sends).await
    }

    /// This rank's share of a band is put together from all layers.
    pub(super) async fn blend_layers(
        &self,
        task: &Task,
        plan: &Plan,
        canvas: &mut Canvas<'_>,
        layers: &[Layer<'_>],
    ) -> Result<()> {
        let (pixels, whole) = (plan.pixels, 0..canvas.pixels(plan.pixels));
        let of = |rank: u32| part(&whole, rank as usize, self.size as usize);
        let message_for = |rank: u32| {
            let cut = layers.iter().map(|layer| {
                let planes = Planes { colors: layer.colors, depths: &[] }.part(pixels, &of(rank));
                Outgoing::of(layer.position, (pixels, pixels), planes, false)
            });
            self.message(&cut.collect::<Vec<_>>())
        };
        let others: Vec<u32> = self.others().collect();
        let messages: Vec<Scratch<'_>> = others.iter().map(|rank| message_for(*rank)).collect();
        let mut sends: Vec<Send<'_>> = others
            .iter()
            .zip(&messages)
            .map(|(rank, message)| self.put(task, *rank, ROUND, message))
            .collect();
        let mut came = vec![(self.rank, message_for(self.rank).to_vec())];
        for rank in &others {
            came.push((*rank, beside(&mut sends, self.get(task, *rank, ROUND)).await?));
        }
        finish(sends).await?;
        let own = of(self.rank);
        let mut all = Vec::new();
        for (rank, message) in &came {
            let layers = unpack(message, pixels, own.end - own.start)
                .filter(|layers| layers.iter().all(|layer| layer.follows().is_none()))
                .ok_or_else(|| self.no_picture(task, *rank))?;
            all.extend(layers.into_iter().map(|layer| (*rank, layer)));
        }
        all.sort_by_key(|(rank, layer)| (layer.position, *rank));
        let twice = all.windows(2).find(|pair| pair[0].1.position == pair[1].1.position);
        if let Some([(first, layer), (second, _)]) = twice {
            return Err(self.same_position(task, layer.position, (*first, *second)));
        }
        let own = canvas.part(pixels, &own);
        for (_, layer) in &all {
            layer.blend(pixels, (own.colors, own.depths), Side::Behind);
        }
        Ok(())
    }

    /// Who gets the whole gets the shares of all.
    pub(super) async fn give_shares(&self, task: &Task, plan: &Plan, canvas: &mut Canvas<'_>) -> Result<()> {
        let shares = plan.rounds.shares(&(0..canvas.pixels(plan.pixels)));
        let own = shares[plan.place as usize].clone().unwrap_or_default();
        let (own, mut others) = canvas.split(plan.pixels, &own);
        let takers: Vec<u32> =
            self.others().filter(|rank| plan.root.is_none_or(|root| root == *rank)).collect();
        let (layer, message);
        let mut sends = Vec::new();
        if shares[plan.place as usize].is_some() && !takers.is_empty() {
            layer = Outgoing::of(0, (plan.pixels, plan.result), own.planes(), true);
            message = self.message(std::slice::from_ref(&layer));
            for rank in takers {
                self.send_layer(task, (rank, SHARE), (&message, &layer), &mut sends);
            }
        }
        if plan.root.is_none_or(|root| root == self.rank) {
            for (rank, share) in plan.ranks.iter().zip(&shares) {
                let Some(share) = share.as_ref().filter(|_| *rank != self.rank) else { continue };
                let mut there = others.part(plan.pixels, share);
                self.write_from(task, plan, (*rank, SHARE), &mut there, &mut sends).await?;
            }
        }
        finish(sends).await
    }

    /// A message of layers, in memory that is kept for the next one.
    fn message(&self, layers: &[Outgoing<'_>]) -> Scratch<'_> {
        let mut message = self.hub.spare.take(length(layers));
        write(layers, &mut message);
        message
    }

    fn send_layer<'a>(
        &'a self,
        task: &'a Task,
        (rank, tag): (u32, u64),
        (message, layer): (&'a [u8], &Outgoing<'a>),
        sends: &mut Vec<Send<'a>>,
    ) {
        sends.push(self.put(task, rank, tag, message));
        sends.extend(layer.lent().map(|plane| self.put(task, rank, tag, plane)));
    }

    /// Puts what a rank sends together with what stands there.
    async fn blend_from(
        &self,
        task: &Task,
        plan: &Plan,
        (from, side): (From, Side),
        canvas: &mut Canvas<'_>,
        sends: &mut [Send<'_>],
    ) -> Result<()> {
        let pixels = plan.pixels;
        let message = self.taken(task, from, (pixels, canvas.pixels(pixels)), sends).await?;
        let layer = self.only_layer(task, from, (pixels, canvas.pixels(pixels)), &message)?;
        let Some(span) = layer.follows() else {
            layer.blend(pixels, (canvas.colors, canvas.depths), side);
            return Ok(());
        };
        let (mut colors, mut depths) = self.room(pixels, &span);
        self.fill_planes(task, from, (&mut colors, &mut depths), sends).await?;
        let layer = layer.with(Planes { colors: &colors, depths: &depths });
        layer.blend(pixels, (canvas.colors, canvas.depths), side);
        Ok(())
    }

    /// Puts what a rank sends of the result in its place.
    async fn write_from(
        &self,
        task: &Task,
        plan: &Plan,
        from: From,
        canvas: &mut Canvas<'_>,
        sends: &mut [Send<'_>],
    ) -> Result<()> {
        let (pixels, result) = (plan.pixels, plan.result);
        let message = self.taken(task, from, (result, canvas.pixels(pixels)), sends).await?;
        let layer = self.only_layer(task, from, (result, canvas.pixels(pixels)), &message)?;
        let without_depths = result.depth() == 0;
        let Some(span) = layer.follows() else {
            let depths = if without_depths { &mut [] } else { &mut *canvas.depths };
            layer.write(result, (canvas.colors, depths));
            return Ok(());
        };
        if layer.is_whole() {
            // Right to where it belongs.
            let there = canvas.part(pixels, &span);
            let depths = if without_depths { &mut [] } else { there.depths };
            return self.fill_planes(task, from, (there.colors, depths), sends).await;
        }
        let (mut colors, mut depths) = self.room(result, &span);
        self.fill_planes(task, from, (&mut colors, &mut depths), sends).await?;
        let depths_there = if without_depths { &mut [] } else { &mut *canvas.depths };
        layer.with(Planes { colors: &colors, depths: &depths }).write(result, (canvas.colors, depths_there));
        Ok(())
    }

    /// A message of a rank.
    async fn taken(
        &self,
        task: &Task,
        (rank, tag): From,
        (pixels, count): (Pixels, u32),
        sends: &mut [Send<'_>],
    ) -> Result<Scratch<'_>> {
        let mut message = self.hub.spare.take(longest(pixels, count as usize));
        let bytes = beside(sends, self.fill_some(task, rank, tag, &mut message)).await?;
        message.cut(bytes);
        Ok(message)
    }

    fn only_layer<'a>(
        &self,
        task: &Task,
        (rank, _): From,
        (pixels, room): (Pixels, u32),
        message: &'a [u8],
    ) -> Result<Incoming<'a>> {
        match unpack(message, pixels, room).as_deref() {
            Some([layer]) => Ok(*layer),
            _ => Err(self.no_picture(task, rank)),
        }
    }

    /// Memory for planes that follow.
    fn room(&self, pixels: Pixels, span: &Range<u32>) -> (Scratch<'_>, Scratch<'_>) {
        let count = (span.end - span.start) as usize;
        (self.hub.spare.take(count * pixels.color()), self.hub.spare.take(count * pixels.depth()))
    }

    async fn fill_planes(
        &self,
        task: &Task,
        (rank, tag): From,
        (colors, depths): (&mut [u8], &mut [u8]),
        sends: &mut [Send<'_>],
    ) -> Result<()> {
        beside(sends, self.fill(task, rank, tag, colors)).await?;
        if !depths.is_empty() {
            beside(sends, self.fill(task, rank, tag, depths)).await?;
        }
        Ok(())
    }

    /// What a rank sends is no part of a picture: all are told, since this one does not go on.
    fn no_picture(&self, task: &Task, rank: u32) -> Error {
        let why = format_args!("what rank {rank} sends is no part of a picture of this size");
        let error = task.failed(ErrorKind::Protocol, Some(0), why);
        self.hub.spread_failure(task, &error.text);
        error
    }
}
