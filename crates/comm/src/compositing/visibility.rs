//! Which of several boxes stand before which others.

use forebay_core::{Error, Result};

/// A box along the axes: its lowest and its highest corner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// The lowest corner.
    pub low: [f64; 3],
    /// The highest corner.
    pub high: [f64; 3],
}

/// From where boxes are seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum View {
    /// From a point: what is far is small.
    From([f64; 3]),
    /// In a direction, in which all rays go.
    Along([f64; 3]),
}

/// The order of boxes from front to back, as indices: no box hides any part of one that comes before it. Of those that may stand in any order
/// the one with the lower index comes first. The boxes must not overlap, but may touch: give those of blocks without their ghosts. Three or
/// more may stand in a ring, of which each hides a part of the next one; that is an error. Compares each with each other one.
pub fn front_to_back(boxes: &[Bounds], view: View) -> Result<Vec<usize>> {
    check(boxes, view)?;
    let mut before = vec![0u32; boxes.len()];
    let mut behind = vec![Vec::new(); boxes.len()];
    for first in 0..boxes.len() {
        for second in first + 1..boxes.len() {
            let (may_lead, may_follow) = (
                may_lead(&boxes[first], &boxes[second], view),
                may_lead(&boxes[second], &boxes[first], view),
            );
            let (front, back) = match (may_lead, may_follow) {
                (true, true) => continue,
                (true, false) => (first, second),
                (false, true) => (second, first),
                (false, false) => return Err(Error::invalid(format!("boxes {first} and {second} overlap"))),
            };
            behind[front].push(back);
            before[back] += 1;
        }
    }
    let mut free: std::collections::BTreeSet<usize> =
        (0..boxes.len()).filter(|index| before[*index] == 0).collect();
    let mut order = Vec::with_capacity(boxes.len());
    while let Some(front) = free.pop_first() {
        order.push(front);
        for back in &behind[front] {
            before[*back] -= 1;
            if before[*back] == 0 {
                free.insert(*back);
            }
        }
    }
    if order.len() < boxes.len() {
        let held: Vec<String> = (0..boxes.len())
            .filter(|index| before[*index] > 0)
            .take(6)
            .map(|index| index.to_string())
            .collect();
        return Err(Error::invalid(format!(
            "boxes hide parts of each other in a ring ({}): no order is right, divide one of them",
            held.join(", ")
        )));
    }
    Ok(order)
}

/// Whether a box may come first: a plane across an axis parts them, and who looks is on its side of that, or in it.
fn may_lead(first: &Bounds, second: &Bounds, view: View) -> bool {
    (0..3).any(|axis| match view {
        View::From(eye) => {
            first.high[axis] <= second.low[axis] && eye[axis] <= second.low[axis]
                || second.high[axis] <= first.low[axis] && eye[axis] >= second.high[axis]
        }
        View::Along(direction) => {
            first.high[axis] <= second.low[axis] && direction[axis] >= 0.0
                || second.high[axis] <= first.low[axis] && direction[axis] <= 0.0
        }
    })
}

fn check(boxes: &[Bounds], view: View) -> Result<()> {
    for (index, Bounds { low, high }) in boxes.iter().enumerate() {
        if (0..3).any(|axis| !(low[axis].is_finite() && high[axis].is_finite() && low[axis] <= high[axis])) {
            return Err(Error::invalid(format!(
                "box {index} goes from {low:?} to {high:?}: give the lowest corner first"
            )));
        }
    }
    let (View::From(numbers) | View::Along(numbers)) = view;
    if !numbers.iter().all(|number| number.is_finite()) {
        return Err(Error::invalid(format!("boxes cannot be seen from {numbers:?}")));
    }
    if view == View::Along([0.0; 3]) {
        return Err(Error::invalid("a direction of 0 in all axes is none"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grid(n: [usize; 3]) -> Vec<Bounds> {
        let mut boxes = Vec::new();
        for z in 0..n[2] {
            for y in 0..n[1] {
                for x in 0..n[0] {
                    let low = [x as f64, y as f64, z as f64];
                    boxes.push(Bounds { low, high: low.map(|low| low + 1.0) });
                }
            }
        }
        boxes
    }

    /// Where a ray enters a box, and leaves it.
    fn hit(bounds: &Bounds, eye: [f64; 3], direction: [f64; 3]) -> Option<(f64, f64)> {
        let (mut enters, mut leaves) = (0.0f64, f64::INFINITY);
        for axis in 0..3 {
            let at = |plane: f64| (plane - eye[axis]) / direction[axis];
            let (first, second) = (at(bounds.low[axis]), at(bounds.high[axis]));
            enters = enters.max(first.min(second));
            leaves = leaves.min(first.max(second));
        }
        (enters < leaves).then_some((enters, leaves))
    }

    proptest! {
        /// Along every ray boxes come in the order, wherever the eye is: outside, inside, on an edge or an axis.
        #[test]
        fn rays_meet_boxes_in_their_order(
            eye in prop::array::uniform3(prop_oneof![(-2i32..7).prop_map(f64::from), -2.0..7.0]),
            direction in prop::array::uniform3(prop_oneof![-1.0..-0.01, 0.01..1.0]),
            n in prop::array::uniform3(1usize..5),
            is_parallel: bool,
        ) {
            let boxes = grid(n);
            let view = if is_parallel { View::Along(direction) } else { View::From(eye) };
            let order = front_to_back(&boxes, view).unwrap();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..boxes.len()).collect::<Vec<_>>());
            // A ray of a parallel view begins far before all boxes.
            let from = if is_parallel { std::array::from_fn(|axis| eye[axis] - 1e3 * direction[axis]) } else { eye };
            let mut last = 0.0;
            for (enters, leaves) in order.iter().filter_map(|index| hit(&boxes[*index], from, direction)) {
                prop_assert!(enters >= last - 1e-6, "{enters} after {last}");
                last = leaves;
            }
        }
    }

    #[test]
    fn boxes_that_overlap_or_stand_in_a_ring_are_refused() {
        let bounds = |low, high| Bounds { low, high };
        let two = [bounds([0.0; 3], [2.0; 3]), bounds([1.0; 3], [3.0; 3])];
        let told = front_to_back(&two, View::From([9.0; 3])).unwrap_err().text;
        assert_eq!(told, "boxes 0 and 1 overlap");
        // Three beams, each of which lies before the next one.
        let ring = [
            bounds([0.0, 0.0, 1.0], [3.0, 1.0, 2.0]),
            bounds([1.0, 0.0, 0.0], [2.0, 3.0, 1.0]),
            bounds([0.0, 1.0, 0.0], [1.0, 2.0, 3.0]),
        ];
        let told = front_to_back(&ring, View::Along([1.0; 3])).unwrap_err().text;
        assert!(told.contains("in a ring (0, 1, 2)"), "{told}");
        assert_eq!(front_to_back(&ring[..2], View::Along([1.0; 3])).unwrap(), [1, 0]);
        let flat = bounds([0.0, 1.0, 0.0], [1.0, 0.0, 1.0]);
        assert!(front_to_back(&[flat], View::From([0.0; 3])).is_err());
        assert!(front_to_back(&two[..1], View::Along([0.0; 3])).is_err());
        assert!(front_to_back(&two[..1], View::From([f64::NAN; 3])).is_err());
        assert_eq!(front_to_back(&[], View::From([0.0; 3])).unwrap(), [0usize; 0]);
    }
}
