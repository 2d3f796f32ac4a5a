//! The steps that readers hold: `fb_step_...`, `fb_get` and `fb_covered`.
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay.h")]
#![allow(non_camel_case_types, reason = "the names are those of the header")]

use crate::abi::{Sized64, fb_selection, fb_stats, fb_step_info, fb_view};
use crate::arguments;
use crate::attr_table::AttrTable;
use crate::boundary::{Handle, call};
use crate::boxes::{self, eight};
use crate::field_texts::FieldTexts;
use forebay_client::core::dtype::Dtype;
use forebay_client::core::stats::{Stats, Value};
use forebay_client::{BlockBytes, BlockList, Choice, RankBounds, Result, Step};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Which blocks of a field are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Whose {
    All,
    /// This rank's, of a parallel reader.
    Mine,
}

/// What a step's handle points at.
pub(crate) struct StepInner {
    /// The blocks of fields that were asked for; freed before the step is released.
    lists: Mutex<Vec<Arc<ListedBlocks>>>,
    /// What the fields are called, as C has text, once it was asked for.
    pub(crate) texts: OnceLock<Vec<FieldTexts>>,
    /// Which part of space each rank has, once that was asked for.
    bounds: OnceLock<BTreeMap<u32, RankBounds>>,
    /// The attributes as C has them, once they were asked for.
    pub(crate) attributes: OnceLock<AttrTable>,
    pub(crate) step: Step,
}

/// The blocks of a field, or those that are this rank's.
struct ListedBlocks {
    whose: Whose,
    list: BlockList,
    /// What was shown of each.
    shown: Vec<ShownBlock>,
}

/// What was shown of a block: its address stays valid as long as this lives.
#[derive(Default)]
struct ShownBlock {
    bytes: OnceLock<BlockBytes>,
    /// The bounds of its tiles.
    tiles: OnceLock<Vec<u64>>,
}

/// One step, as a consumer holds it.
pub(crate) type fb_step = Handle<StepInner>;

/// Tells which step it is.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_step_info_get(step: *const fb_step, info: *mut fb_step_info) -> c_int {
    call("fb_step_info_get", || {
        // SAFETY: the header's terms.
        unsafe {
            let report = Handle::get(step, "step")?.step.report();
            let told = fb_step_info {
                run: report.id.run,
                number: report.id.step,
                time: report.time,
                missed: report.missed,
                rewound: i32::from(report.rewound),
                torn: i32::from(report.torn),
                attempt: report.attempt,
                ..fb_step_info::DEFAULT
            };
            arguments::write(&told, info, "info")
        }
    })
}

/// Copies exactly the region asked for, or fails and says what is missing.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_get(step: *mut fb_step, selection: *const fb_selection) -> c_int {
    call("fb_get", || {
        // SAFETY: the header's terms.
        unsafe {
            let step = &Handle::get(step, "step")?.step;
            let given = arguments::read(selection, "selection")?;
            let name = arguments::text(given.field, "selection->field")?;
            let dtype = step.field(name)?.dtype;
            let selection = boxes::selection(&given)?;
            let mut target = boxes::target(&given, &selection.shape, name, dtype)?;
            step.read_with(name, &selection, Choice::of_number(given.holes, "selection->holes")?, &mut target)
        }
    })
}

/// Tells which elements of a region were put.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_covered(step: *const fb_step, selection: *const fb_selection) -> c_int {
    call("fb_covered", || {
        // SAFETY: the header's terms.
        unsafe {
            let step = &Handle::get(step, "step")?.step;
            let given = arguments::read(selection, "selection")?;
            let name = arguments::text(given.field, "selection->field")?;
            let selection = boxes::selection(&given)?;
            let mut target = boxes::target(&given, &selection.shape, name, Dtype::Bool)?;
            target.fill_with(&[0])?;
            for part in step.covered(name, &selection)? {
                target.part(&part)?.fill_with(&[1])?;
            }
        }
        Ok(())
    })
}

/// Tells how many blocks a field has at this step.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_step_block_count(
    step: *const fb_step,
    field: *const c_char,
    count: *mut u64,
) -> c_int {
    call("fb_step_block_count", || {
        // SAFETY: the header's terms.
        unsafe {
            let listed = Handle::get(step, "step")?.listed(arguments::text(field, "field")?, Whose::All)?;
            arguments::place(count, "count")?.write(listed.list.count() as u64);
        }
        Ok(())
    })
}

/// Tells how many blocks of a field are this rank's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_step_mine_count(
    step: *const fb_step,
    field: *const c_char,
    count: *mut u64,
) -> c_int {
    call("fb_step_mine_count", || {
        // SAFETY: the header's terms.
        unsafe {
            let listed = Handle::get(step, "step")?.listed(arguments::text(field, "field")?, Whose::Mine)?;
            arguments::place(count, "count")?.write(listed.list.count() as u64);
        }
        Ok(())
    })
}

/// Shows one of this rank's blocks of a field where it lies.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_step_mine(
    step: *mut fb_step,
    field: *const c_char,
    index: u64,
    view: *mut fb_view,
) -> c_int {
    call("fb_step_mine", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(step, "step")?;
            let shown = inner.view(arguments::text(field, "field")?, index, Whose::Mine)?;
            arguments::write(&shown, view, "view")
        }
    })
}

/// Tells which slab of a field is this rank's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_step_mine_region(
    step: *const fb_step,
    field: *const c_char,
    offset: *mut u64,
    shape: *mut u64,
    every: *mut u64,
) -> c_int {
    call("fb_step_mine_region", || {
        // SAFETY: the header's terms.
        unsafe {
            let step = &Handle::get(step, "step")?.step;
            let slab = step.mine_region(arguments::text(field, "field")?)?;
            let places = [(offset, "offset", &slab.offset), (shape, "shape", &slab.shape)];
            for (place, what, numbers) in places {
                arguments::place(place, what)?;
                std::ptr::copy_nonoverlapping(numbers.as_ptr(), place, numbers.len());
            }
            if !every.is_null() {
                std::ptr::copy_nonoverlapping(slab.step.as_ptr(), every, slab.step.len());
            }
        }
        Ok(())
    })
}

/// Shows one block of a field where it lies.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_step_block(
    step: *mut fb_step,
    field: *const c_char,
    index: u64,
    view: *mut fb_view,
) -> c_int {
    call("fb_step_block", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(step, "step")?;
            let shown = inner.view(arguments::text(field, "field")?, index, Whose::All)?;
            arguments::write(&shown, view, "view")
        }
    })
}

impl StepInner {
    /// Of a step that is not looked at yet.
    pub(crate) fn new(step: Step) -> StepInner {
        let (texts, attributes, bounds) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        StepInner { lists: Mutex::default(), texts, bounds, attributes, step }
    }

    /// Which part of space each rank has: read once.
    pub(crate) fn rank_bounds(&self) -> Result<&BTreeMap<u32, RankBounds>> {
        if self.bounds.get().is_none() {
            let _ = self.bounds.set(self.step.rank_bounds()?);
        }
        Ok(self.bounds.get_or_init(BTreeMap::new))
    }

    /// A field's blocks: found once.
    fn listed(&self, name: &str, whose: Whose) -> Result<Arc<ListedBlocks>> {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lists.iter().find(|known| known.list.field() == name && known.whose == whose) {
            return Ok(known.clone());
        }
        let list = match whose {
            Whose::All => self.step.block_list(name)?,
            Whose::Mine => self.step.mine_list(name)?,
        };
        let shown = (0..list.count()).map(|_| ShownBlock::default()).collect();
        let listed = Arc::new(ListedBlocks { whose, list, shown });
        lists.push(listed.clone());
        Ok(listed)
    }

    fn view(&self, name: &str, index: u64, whose: Whose) -> Result<fb_view> {
        let field = self.step.field(name)?;
        let ListedBlocks { list, shown, .. } = &*self.listed(name, whose)?;
        // Past the last block on any machine.
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let (record, shown) = (list.record(index)?, &shown[index]);
        let extent = &record.extent;
        let mut view = fb_view {
            number: record.key.number,
            rank: record.key.rank,
            level: record.level,
            dtype: field.dtype as i32,
            ndim: extent.ndim() as u32,
            server: record.location.server.0,
            placed: i32::from(extent.offset().is_some()),
            offset: eight(extent.offset().unwrap_or_default()),
            shape: eight(extent.shape()),
            ghost_low: eight(&extent.ghost_low()),
            ghost_high: eight(&extent.ghost_high()),
            step: eight(&extent.selection().step),
            bytes: extent.bytes(field.dtype)?,
            ..fb_view::DEFAULT
        };
        if let Some(stats) = &record.stats
            && let Some(whole) = stats.whole()
        {
            let all = told_stats(&whole, field.dtype);
            view.has_stats = 1;
            (view.min, view.max, view.sum, view.variance) = (all.min, all.max, all.sum, all.variance);
            (view.count, view.nan, view.min_bits, view.max_bits) =
                (all.count, all.nan, all.min_bits, all.max_bits);
            view.tiles = (stats.tiles.len() / (2 * field.dtype.size())) as u64;
            if view.tiles > 0 {
                view.tile_bounds = shown.tile_bounds(&stats.tiles).cast();
            }
        }
        if view.bytes > 0 {
            let bytes = match shown.bytes.get() {
                Some(bytes) => bytes,
                None => {
                    let bytes = self.step.show(list, index)?;
                    shown.bytes.get_or_init(|| bytes)
                }
            };
            view.data = bytes.as_raw()?.0.cast();
        }
        Ok(view)
    }
}

impl ShownBlock {
    /// The address of the bounds of its tiles, aligned as any element.
    fn tile_bounds(&self, tiles: &[u8]) -> *const u64 {
        let words = || {
            let word = |bytes: &[u8]| {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                u64::from_ne_bytes(word)
            };
            tiles.chunks(8).map(word).collect()
        };
        self.tiles.get_or_init(words).as_ptr()
    }
}

/// Statistics as C has them, of a field of this type.
fn told_stats(stats: &Stats, dtype: Dtype) -> fb_stats {
    let bits = |value: Value| {
        let mut bytes = Vec::with_capacity(8);
        value.write(dtype, &mut bytes);
        bytes.resize(8, 0);
        bytes.try_into().map_or(0, u64::from_le_bytes)
    };
    let (min_bits, max_bits) = stats.bounds.map_or((0, 0), |(min, max)| (bits(min), bits(max)));
    fb_stats {
        min: stats.min(),
        max: stats.max(),
        sum: stats.sum.to_f64(),
        variance: stats.variance(),
        count: stats.count,
        nan: stats.nan,
        min_bits,
        max_bits,
        ..fb_stats::DEFAULT
    }
}

/// The statistics of a whole field.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_step_stats(
    step: *const fb_step,
    field: *const c_char,
    stats: *mut fb_stats,
) -> c_int {
    call("fb_step_stats", || {
        // SAFETY: the header's terms.
        unsafe {
            let step = &Handle::get(step, "step")?.step;
            let name = arguments::text(field, "field")?;
            let dtype = step.field(name)?.dtype;
            let found = step.stats(name)?.ok_or_else(|| step.has_no_stats(name))?;
            arguments::write(&told_stats(&found, dtype), stats, "stats")
        }
    })
}

/// Has finished with a step, and frees its handle.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_step_release(step: *mut fb_step) -> c_int {
    call("fb_step_release", || {
        // SAFETY: the header's terms. A child leaves it alone: another thread may have held its lock.
        drop(unsafe { Handle::take(step) });
        Ok(())
    })
}

/// Gives a step back that others are to be given, and frees its handle.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_step_give_back(step: *mut fb_step) -> c_int {
    call("fb_step_give_back", || {
        // SAFETY: the header's terms.
        if let Some(handle) = unsafe { Handle::take(step) } {
            handle.step.give_back();
        }
        Ok(())
    })
}
