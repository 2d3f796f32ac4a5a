//! How many numbers there are, their sum, and how they spread, of parts that are merged in any order.
//!
//! A part tells the squared distances from its own mean. Those from the mean of all follow, as in T. F. Chan, G. H. Golub and R. J.
//! LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979): sum n_i (m_i - M)^2 is added to them. Until
//! M is known its three sums are kept, each exactly, so that the order of parts does not show.

use crate::gather::total::Total;
use forebay_core::exact_sum::ExactSum;
use serde::{Deserialize, Serialize};

/// How many numbers there are, their sum, and how they spread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moments {
    /// Their sum.
    pub total: Total,
    /// How many they are.
    pub count: u64,
    /// The squared distances of the numbers of each part from its mean.
    squares: ExactSum,
    /// The means of the parts, each as often as it has numbers.
    means: ExactSum,
    /// The same of their squares.
    mean_squares: ExactSum,
}

impl Moments {
    /// Of no numbers.
    pub fn new(total: Total) -> Moments {
        let [squares, means, mean_squares] = [(); 3].map(|()| ExactSum::default());
        Moments { total, count: 0, squares, means, mean_squares }
    }

    /// Takes in how a part spreads: how many numbers it has, their mean, and their squared distances from that. Their sum is not taken in.
    pub fn add_part(&mut self, count: u64, mean: f64, squares: f64) {
        if count == 0 {
            return;
        }
        self.count += count;
        self.squares.add(squares);
        add_product(&mut self.means, count as f64, mean);
        let (square, lost) = product(mean, mean);
        add_product(&mut self.mean_squares, count as f64, square);
        add_product(&mut self.mean_squares, count as f64, lost);
    }

    /// Takes in others.
    pub fn add(&mut self, other: &Moments) {
        self.total.add(&other.total);
        self.count += other.count;
        self.squares.add_sum(&other.squares);
        self.means.add_sum(&other.means);
        self.mean_squares.add_sum(&other.mean_squares);
    }

    /// The mean; NaN of no numbers.
    pub fn mean(&self) -> f64 {
        self.total.to_f64() / self.count as f64
    }

    /// The squared distances from the mean; `None` if squares of means are beyond the doubles.
    pub fn squares(&self) -> Option<f64> {
        if self.count == 0 {
            return Some(0.0);
        }
        let mean = self.mean();
        let mut all = self.squares.clone();
        all.add_sum(&self.mean_squares);
        // More digits than their squares need.
        for means in self.means.to_parts::<3>().0 {
            add_product(&mut all, -2.0 * mean, means);
        }
        let (square, lost) = product(mean, mean);
        add_product(&mut all, self.count as f64, square);
        add_product(&mut all, self.count as f64, lost);
        let squares = all.to_f64();
        squares.is_finite().then_some(squares.max(0.0))
    }
}

/// A product of two doubles as two: T. J. Dekker, "A floating-point technique for extending the available precision" (1971).
fn product(a: f64, b: f64) -> (f64, f64) {
    let product = a * b;
    (product, a.mul_add(b, -product))
}

fn add_product(sum: &mut ExactSum, a: f64, b: f64) {
    let (product, lost) = product(a, b);
    sum.add(product);
    sum.add(lost);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Of parts, each with its mean and squares as they are computed.
    fn of(parts: &[Vec<f64>]) -> Moments {
        let mut all = Moments::new(Total::Float(Box::default()));
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let mean = part.iter().sum::<f64>() / part.len() as f64;
            let squares = part.iter().map(|x| (x - mean) * (x - mean)).sum();
            let mut one = Moments::new(Total::Float(Box::new(part.iter().copied().collect())));
            one.add_part(part.len() as u64, mean, squares);
            all.add(&one);
        }
        all
    }

    #[test]
    fn numbers_that_differ_little_keep_their_variance() {
        let parts = [vec![1e9 + 4.0, 1e9 + 7.0], vec![1e9 + 13.0, 1e9 + 16.0]];
        assert_eq!(of(&parts).squares(), Some(90.0));
        assert_eq!(of(&[vec![0.1; 7], vec![0.1; 9]]).squares().map(|squares| squares < 1e-30), Some(true));
        assert_eq!(of(&[]).squares(), Some(0.0));
        assert_eq!(of(&[vec![1e200, 1e200]]).squares(), None, "their squares are no doubles");
        assert_eq!(of(&[vec![1.0], vec![f64::INFINITY]]).squares(), None);
    }

    proptest! {
        #[test]
        fn the_order_of_parts_does_not_show(
            parts in prop::collection::vec(prop::collection::vec(-1e3f64..1e3, 1..9), 1..9), at in 1e-3f64..1e9, cut in 0usize..9
        ) {
            let mut parts: Vec<Vec<f64>> = parts.into_iter().map(|part| part.into_iter().map(|x| x + at).collect()).collect();
            let squares = of(&parts).squares().unwrap();
            let cut = cut.min(parts.len());
            parts.rotate_left(cut);
            prop_assert_eq!(of(&parts).squares().unwrap().to_bits(), squares.to_bits());
            let all: Vec<f64> = parts.concat();
            let mean = all.iter().copied().collect::<ExactSum>().to_f64() / all.len() as f64;
            let plain: f64 = all.iter().map(|x| (x - mean) * (x - mean)).sum();
            prop_assert!((plain - squares).abs() <= 1e-9 * plain + 1e-6, "{} and {}", plain, squares);
        }
    }
}
