//! From the bytes of arrays to registers.

use crate::element::{Element, values_of};
use crate::evaluate::runs::Segment;
use crate::evaluate::window::FieldArray;
use forebay_core::dtype::Dtype;
use forebay_query::plan::{Part, Shift};

/// The elements of segments, or their neighbours, of one array.
pub(super) struct Loading<'s, 'a> {
    pub(super) array: &'a FieldArray<'a>,
    pub(super) segments: &'s [Segment],
    /// How far elements lie from each other.
    pub(super) step: u64,
    pub(super) shift: Option<Shift>,
}

impl<'a> Loading<'_, 'a> {
    /// Where the first element of a segment lies in the array, or the neighbour of it.
    fn first(&self, segment: &Segment) -> usize {
        let neighbour = self
            .shift
            .map_or(0, |shift| self.array.stride(usize::from(shift.dim)) as i64 * i64::from(shift.by));
        let first = self.array.place(&segment.start) + segment.skip * self.step;
        first.wrapping_add_signed(neighbour) as usize
    }

    /// The elements where they lie, if they are of this type, side by side, and aligned as such values are.
    #[inline(always)]
    pub(super) fn lying<T: Element>(&self, count: usize) -> Option<&'a [T]> {
        match self.segments {
            [segment] if self.step == 1 && self.array.dtype == T::DTYPE => {
                let first = self.first(segment) * size_of::<T>();
                values_of(self.array.bytes.get(first..first + count * size_of::<T>())?)
            }
            _ => None,
        }
    }

    /// Fills a register with what is made of each element of `N` bytes.
    #[inline(always)]
    fn fill<const N: usize, T>(&self, to: &mut [T], of: impl Fn([u8; N]) -> T) {
        let (elements, _) = self.array.bytes.as_chunks::<N>();
        let mut rest = to;
        for segment in self.segments {
            let (to, behind) = rest.split_at_mut(segment.count.min(rest.len()));
            rest = behind;
            let first = self.first(segment);
            if self.step == 1 {
                let elements = elements.get(first..first + segment.count).unwrap_or_default();
                for (to, element) in to.iter_mut().zip(elements) {
                    *to = of(*element);
                }
            } else {
                let elements = elements.get(first..).unwrap_or_default().iter().step_by(self.step as usize);
                for (to, element) in to.iter_mut().zip(elements) {
                    *to = of(*element);
                }
            }
        }
    }

    #[inline(always)]
    pub(super) fn f64s(&self, part: Part, to: &mut [f64]) {
        match (self.array.dtype, part) {
            (Dtype::C128, Part::Imag) => self.fill(to, |b: [u8; 16]| pair(b).1),
            (Dtype::C128, Part::Abs) => self.fill(to, |b: [u8; 16]| pair(b).0.hypot(pair(b).1)),
            (Dtype::C128, _) => self.fill(to, |b: [u8; 16]| pair(b).0),
            _ => self.fill(to, f64::from_le_bytes),
        }
    }

    #[inline(always)]
    pub(super) fn f32s(&self, part: Part, to: &mut [f32]) {
        match (self.array.dtype, part) {
            (Dtype::C64, Part::Imag) => self.fill(to, |b: [u8; 8]| narrow_pair(b).1),
            (Dtype::C64, Part::Abs) => self.fill(to, |b: [u8; 8]| narrow_pair(b).0.hypot(narrow_pair(b).1)),
            (Dtype::C64, _) => self.fill(to, |b: [u8; 8]| narrow_pair(b).0),
            (Dtype::F16, _) => self.fill(to, |b| half::f16::from_le_bytes(b).to_f32()),
            (Dtype::Bf16, _) => self.fill(to, |b| half::bf16::from_le_bytes(b).to_f32()),
            _ => self.fill(to, f32::from_le_bytes),
        }
    }

    #[inline(always)]
    pub(super) fn i64s(&self, _: Part, to: &mut [i64]) {
        match self.array.dtype {
            Dtype::I8 => self.fill(to, |b| i64::from(i8::from_le_bytes(b))),
            Dtype::U8 => self.fill(to, |b| i64::from(u8::from_le_bytes(b))),
            Dtype::I16 => self.fill(to, |b| i64::from(i16::from_le_bytes(b))),
            Dtype::U16 => self.fill(to, |b| i64::from(u16::from_le_bytes(b))),
            Dtype::I32 => self.fill(to, |b| i64::from(i32::from_le_bytes(b))),
            Dtype::U32 => self.fill(to, |b| i64::from(u32::from_le_bytes(b))),
            _ => self.fill(to, i64::from_le_bytes),
        }
    }

    #[inline(always)]
    pub(super) fn u64s(&self, _: Part, to: &mut [u64]) {
        self.fill(to, u64::from_le_bytes);
    }

    #[inline(always)]
    pub(super) fn masks(&self, to: &mut [u8]) {
        self.fill(to, |[byte]: [u8; 1]| u8::from(byte != 0));
    }
}

/// Both parts of a complex number.
#[inline(always)]
fn pair(bytes: [u8; 16]) -> (f64, f64) {
    let both = u128::from_le_bytes(bytes);
    (f64::from_bits(both as u64), f64::from_bits((both >> 64) as u64))
}

#[inline(always)]
fn narrow_pair(bytes: [u8; 8]) -> (f32, f32) {
    let both = u64::from_le_bytes(bytes);
    (f32::from_bits(both as u32), f32::from_bits((both >> 32) as u32))
}
