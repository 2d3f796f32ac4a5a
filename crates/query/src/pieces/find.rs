//! The pieces of an aggregate, of the blocks of a step.

use crate::gather::{Gathered, Partial};
use crate::pieces::needed::{Needed, first_of};
use crate::pieces::piece::{Copied, Held, Piece, Source};
use crate::plan::{Aggregate, Plan};
use crate::syntax::Level;
use crate::value::{Unknown, UnknownKind};
use forebay_core::block::BlockRecord;
use forebay_core::contract::Field;
use forebay_core::ids::BlockKey;
use forebay_core::parts::holders_of;
use forebay_core::region::{Dims, Region};
use forebay_core::selection::Selection;
use std::collections::HashMap;

/// A field as it is at a step, and its blocks there.
#[derive(Debug, Clone, Copy)]
pub struct FieldBlocks<'a> {
    /// The field.
    pub field: &'a Field,
    /// Its blocks, those of all levels.
    pub records: &'a [BlockRecord],
}

/// The elements of an aggregate, and where they are.
#[derive(Debug, Clone, PartialEq)]
pub struct Pieces {
    /// All of them; `None` of blocks without a place, and of all levels.
    pub all: Option<Selection>,
    /// Those that are there, by blocks: no element is in two of them.
    pub list: Vec<Piece>,
}

/// In which blocks the elements of an aggregate are: one piece for each block of the first field that its program takes. `fields` are
/// those of the plan, as far as they are there. Elements that lie in no block of that field are in no piece; where one of another field
/// lacks that goes with them, the reason is given.
pub fn pieces(
    plan: &Plan,
    aggregate: &Aggregate,
    fields: &[Option<FieldBlocks<'_>>],
) -> Result<Pieces, Unknown> {
    let (first, domain) = (aggregate.field, &plan.domains[aggregate.domain]);
    let field = known(plan, fields, first)?.field;
    let finder = Finder::new(plan, aggregate, fields, domain.selection(field)?, domain.shape_of(field)?);
    let parts = finder.parts(first, domain.level)?;
    let taken: Vec<usize> = aggregate.program.fields().into_iter().map(usize::from).collect();
    let list: Result<Vec<Piece>, Unknown> =
        parts.into_iter().map(|part| finder.piece(part, &taken)).collect();
    Ok(Pieces { list: list?, all: finder.all })
}

impl Pieces {
    /// Whether they are all there: the answer to the only question of [`crate::plan::Measure::Covered`].
    pub fn covered(&self) -> Gathered {
        let there: u64 = self.list.iter().map(|piece| piece.part.volume()).sum();
        let holds = self.all.as_ref().is_none_or(|all| all.volume() == there);
        Gathered { elements: there, nan: 0, partial: Ok(Partial::All(holds)) }
    }
}

fn known<'a>(
    plan: &Plan,
    fields: &[Option<FieldBlocks<'a>>],
    index: usize,
) -> Result<FieldBlocks<'a>, Unknown> {
    fields.get(index).copied().flatten().ok_or_else(|| {
        let name = plan.fields.get(index).map_or("", |planned| &planned.field.name);
        Unknown::new(UnknownKind::NotOffered, format!("field '{name}' is not there"))
    })
}

/// Elements of a block of the first field.
struct Part<'a> {
    selection: Selection,
    record: &'a BlockRecord,
}

struct Finder<'a> {
    plan: &'a Plan,
    aggregate: &'a Aggregate,
    fields: &'a [Option<FieldBlocks<'a>>],
    /// The elements of the domain; `None` of blocks without a place, and of all levels.
    all: Option<Selection>,
    /// The extents of the whole array at this level.
    shape: Option<Dims>,
    /// By field: where the blocks are of a rank and a number.
    places: Vec<HashMap<(u32, u64), Vec<usize>>>,
}

impl<'a> Finder<'a> {
    fn new(
        plan: &'a Plan,
        aggregate: &'a Aggregate,
        fields: &'a [Option<FieldBlocks<'a>>],
        all: Option<Selection>,
        shape: Option<Dims>,
    ) -> Finder<'a> {
        let places = fields.iter().map(|known| {
            let mut places: HashMap<(u32, u64), Vec<usize>> = HashMap::new();
            for (index, record) in known.iter().flat_map(|known| known.records).enumerate() {
                places.entry((record.key.rank, record.key.number)).or_default().push(index);
            }
            places
        });
        Finder { plan, aggregate, fields, all, shape, places: places.collect() }
    }

    /// Which elements lie in which block of a field.
    fn parts(&self, first: usize, level: Level) -> Result<Vec<Part<'a>>, Unknown> {
        let records = known(self.plan, self.fields, first)?.records;
        let part = |index: usize, selection: Selection| Some(Part { selection, record: records.get(index)? });
        Ok(match (&self.all, level) {
            (Some(all), Level::One(level)) => holders_of(all, level, records)
                .into_iter()
                .filter_map(|(index, region)| part(index, all.part(&region)))
                .collect(),
            (_, level) => {
                let of_level = |record: &&BlockRecord| match level {
                    Level::One(level) => record.level == level,
                    Level::All => true,
                };
                let whole = |record: &'a BlockRecord| {
                    let selection = Selection::region(&record.extent.interior());
                    Part { selection, record }
                };
                records.iter().filter(of_level).map(whole).collect()
            }
        })
    }

    fn piece(&self, part: Part<'a>, taken: &[usize]) -> Result<Piece, Unknown> {
        let record = part.record;
        // Of all levels, and of blocks without a place, no neighbours are taken.
        let shape = self.shape.clone().unwrap_or_else(|| record.extent.stored_shape());
        let mut sources = vec![None; self.plan.fields.len()];
        for index in taken {
            sources[*index] = Some(self.source(*index, &part, &shape)?);
        }
        Ok(Piece {
            all: self.all.clone().unwrap_or_else(|| part.selection.clone()),
            part: part.selection,
            shape,
            level: record.level,
            block: record.extent.offset().is_none().then_some(record.key),
            server: record.location.server,
            sources,
        })
    }

    /// Where the elements of a field are that go with those of a part.
    fn source(&self, index: usize, part: &Part<'a>, shape: &Dims) -> Result<Source, Unknown> {
        let FieldBlocks { field, records } = known(self.plan, self.fields, index)?;
        let (own, program) = (part.record, &self.aggregate.program);
        let needed = Needed::of(&part.selection, program, index as u16, field, shape);
        let all = part.selection.volume();
        let is_of_part = |record: &&BlockRecord| match &self.all {
            // Ghosts are neighbours, and no elements.
            Some(_) => {
                record.level == own.level
                    && part
                        .selection
                        .within(&record.extent.interior())
                        .is_some_and(|held| held.volume() == all)
                    && needed.lies_in(&record.extent)
            }
            // Of all levels the blocks of fields lie at the same places, of those without a place they have the same numbers.
            None if own.extent.offset().is_some() => {
                record.level == own.level && record.extent.interior() == own.extent.interior()
            }
            None => record.key.is_of_block(&own.key) && record.extent.shape() == own.extent.shape(),
        };
        // Most often it is the block of the same rank and number.
        if let Some(record) =
            self.alike(index, &own.key).find(is_of_part).or_else(|| records.iter().find(is_of_part))
        {
            return Ok(Source {
                dtype: field.dtype,
                origin: first_of(&record.extent)[..record.extent.ndim()].to_vec(),
                shape: record.extent.stored_shape(),
                held: Held::Block(record.clone()),
            });
        }
        if self.all.is_none() {
            let of = &self.plan.fields[self.aggregate.field].field.name;
            let text = format!("field '{}' has no block as {} of field '{of}'", field.name, own.key);
            return Err(Unknown::new(UnknownKind::NotCovered, text));
        }
        self.copied(field, records, own.level, &needed)
    }

    fn alike(&self, index: usize, key: &BlockKey) -> impl Iterator<Item = &'a BlockRecord> {
        let records = self.fields.get(index).copied().flatten().map_or(&[][..], |known| known.records);
        let places = self.places.get(index).and_then(|places| places.get(&(key.rank, key.number)));
        places.into_iter().flatten().filter_map(|place| records.get(*place))
    }

    /// Elements that lie in several blocks.
    fn copied(
        &self,
        field: &Field,
        records: &[BlockRecord],
        level: u32,
        needed: &Needed,
    ) -> Result<Source, Unknown> {
        let lacks = |what: String| Unknown::new(UnknownKind::NotCovered, what);
        let mut copies = Vec::new();
        let shape = self.shape.as_deref().unwrap_or_default();
        for (from, to) in needed.pieces(shape) {
            let mut found = 0;
            for (index, region) in holders_of(&from, level, records) {
                let Some(record) = records.get(index) else { continue };
                let Some(place) = place_of(record, &from.part(&region)) else { continue };
                let Some(to) = within(&to, &region) else { continue };
                found += region.volume();
                copies.push(Copied { record: bare(record), from: place, to });
            }
            if found != from.volume() {
                return Err(lacks(format!("of field '{}' nothing was put at a part of {from}", field.name)));
            }
        }
        Ok(Source {
            dtype: field.dtype,
            origin: needed.origin[..needed.shape.len()].to_vec(),
            shape: needed.shape.clone(),
            held: Held::Copies(copies),
        })
    }
}

/// A block's record as whoever reads its bytes needs it: without statistics.
fn bare(record: &BlockRecord) -> BlockRecord {
    let BlockRecord { key, level, extent, location, inline, stats: _ } = record;
    BlockRecord {
        key: *key,
        level: *level,
        extent: extent.clone(),
        location: *location,
        inline: inline.clone(),
        stats: None,
    }
}

/// Where elements of a block lie in its array as that is stored.
fn place_of(record: &BlockRecord, elements: &Selection) -> Option<Selection> {
    let mut place = record.extent.selection().place_of(elements)?;
    place.offset.iter_mut().zip(record.extent.ghost_low()).for_each(|(offset, low)| *offset += low);
    Some(place)
}

/// A region of a region.
fn within(outer: &Region, inner: &Region) -> Option<Region> {
    let offset: Dims = outer.offset().iter().zip(inner.offset()).map(|(a, b)| a + b).collect();
    Region::new(&offset, inner.shape()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Purpose, check};
    use crate::schema::Schema;
    use crate::syntax::Syntax;
    use forebay_core::block::{Extent, Location};
    use forebay_core::dtype::Dtype;
    use forebay_core::ids::ServerId;

    fn field(name: &str) -> Field {
        Field::new(name, Dtype::F64, Some(&[8, 6]), 2)
    }

    fn block(rank: u32, offset: [u64; 2], shape: [u64; 2], ghosts: u64) -> BlockRecord {
        let width = [ghosts, ghosts];
        let extent = Extent::new(Some(&offset), &shape, &width, &width).unwrap();
        let bytes = extent.bytes(Dtype::F64).unwrap();
        let location = Location { server: ServerId(rank), arena: 0, offset: 0, bytes, generation: 1 };
        BlockRecord { key: BlockKey::whole(rank, 0), level: 0, extent, location, inline: None, stats: None }
    }

    fn found(text: &str, u: &[BlockRecord], v: &[BlockRecord]) -> Result<Vec<Piece>, Unknown> {
        let fields = [field("U"), field("V")];
        let schema = Schema::new(Some("s")).with("s", fields.to_vec());
        let plan = check(&Syntax::parse(text).unwrap(), &schema, Purpose::Once).unwrap();
        let blocks: Vec<Option<FieldBlocks<'_>>> = plan
            .fields
            .iter()
            .map(|planned| {
                let records = if planned.field.name == "U" { u } else { v };
                Some(FieldBlocks { field: &planned.field, records })
            })
            .collect();
        Ok(pieces(&plan, &plan.aggregates[0], &blocks)?.list)
    }

    fn held(piece: &Piece, field: usize) -> Held {
        piece.sources[field].clone().unwrap().held
    }

    fn halves(ghosts: u64) -> Vec<BlockRecord> {
        vec![block(0, [0, 0], [4, 6], ghosts), block(1, [4, 0], [4, 6], ghosts)]
    }

    #[test]
    fn a_region_is_cut_where_blocks_meet() {
        let pieces = found("max(U[2:7, 1:])", &halves(0), &[]).unwrap();
        let parts: Vec<String> = pieces.iter().map(|piece| piece.part.to_string()).collect();
        assert_eq!(parts, ["[2:4, 1:6]", "[4:7, 1:6]"]);
        assert_eq!(pieces.iter().map(|piece| piece.server).collect::<Vec<_>>(), [ServerId(0), ServerId(1)]);
        assert!(
            found("max(U[4:, :])", &halves(0), &[]).unwrap().len() == 1,
            "the other one has nothing of it"
        );
    }

    #[test]
    fn another_field_is_taken_from_its_own_block_or_from_several() {
        let alike = found("max(U + V)", &halves(0), &halves(1)).unwrap();
        assert!(matches!(held(&alike[0], 1), Held::Block(record) if record.key.rank == 0));
        // Halves of the other kind: left and right.
        let v = vec![block(0, [0, 0], [8, 3], 0), block(1, [0, 3], [8, 3], 0)];
        let crossed = found("max(U + V)", &halves(0), &v).unwrap();
        let Held::Copies(copies) = held(&crossed[1], 1) else { panic!("of one block") };
        let places: Vec<(String, String)> =
            copies.iter().map(|copied| (copied.from.to_string(), copied.to.to_string())).collect();
        assert_eq!(copies.len(), 2);
        assert_eq!(places[1].0, "[4:8, 0:3]", "{places:?}");
        assert_eq!((copies[1].to.offset(), copies[1].to.shape()), (&[0, 3][..], &[4, 3][..]));
    }

    #[test]
    fn a_part_of_a_piece_needs_copies_of_what_goes_with_it_alone() {
        let pieces = found("max(gradient_magnitude(U))", &halves(0), &[]).unwrap();
        let upper = &pieces[1];
        let Held::Copies(copies) = held(upper, 0) else { panic!("its neighbours lie in the other block") };
        assert_eq!((copies.len(), upper.copied_bytes()), (2, Some(5 * 6 * 8)));
        let rows = Selection { offset: [6, 1][..].into(), shape: [2, 2][..].into(), step: [1, 1][..].into() };
        let part = upper.narrowed(rows, |_, _| (1, 1)).unwrap();
        let source = part.sources[0].as_ref().unwrap();
        assert_eq!(
            (&source.origin[..], &source.shape[..]),
            (&[5, 0][..], &[3, 4][..]),
            "the array ends at 8"
        );
        let Held::Copies(copies) = &source.held else { panic!("they have to be copied") };
        let [Copied { record, from, to }] = &copies[..] else { panic!("{copies:?}") };
        assert_eq!((record.key.rank, from.to_string()), (1, "[1:4, 0:4]".to_owned()));
        assert_eq!(to, &Region::whole(&[3, 4]).unwrap());
        let whole = halves(1)[1].clone();
        let copied = Source { held: Held::Block(whole), ..source.clone() }.as_copied();
        assert!(matches!(copied.held, Held::Copies(copies) if copies[0].to.shape() == [6, 8]));
    }

    #[test]
    fn what_lacks_of_another_field_is_said() {
        let why = found("max(U + V)", &halves(0), &halves(0)[..1]).unwrap_err();
        assert_eq!(why.kind, UnknownKind::NotCovered);
        assert!(why.text.contains("'V'"), "{}", why.text);
        assert_eq!(found("max(U)", &[], &[]), Ok(vec![]), "who counts elements sees that they lack");
    }
}
