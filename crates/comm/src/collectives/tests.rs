use crate::comm::Comm;
use crate::kind::{Kind, What};
use crate::operation::{Datatype, Operation};
use crate::reduction::Reduction;
use crate::simulation::{Counts, Where, simulate};
use forebay_core::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const PLACES: [Where; 3] = [Where::Apart, Where::Together(1), Where::Together(1000)];

/// What a rank gives: sums of these depend on their order.
fn given(rank: u32, elements: usize) -> Vec<f64> {
    let number = |element: usize| 1.0 / (1.0 + f64::from(rank) * 7.0 + element as f64 % 13.0);
    (0..elements).map(number).collect()
}

/// The sum in the order that is promised: each of the first ranks, as many as there are beyond a power of two, is a pair with the next
/// one; then runs of ranks that are neighbours are combined.
fn expected(size: u32, elements: usize) -> Vec<f64> {
    let mut ranks: Vec<Vec<f64>> = (0..size).map(|rank| given(rank, elements)).collect();
    let add = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a + b).collect();
    let places = 1 << size.ilog2();
    let rest = ranks.len() - places;
    let pairs: Vec<Vec<f64>> = ranks[..2 * rest].chunks(2).map(|pair| add(&pair[0], &pair[1])).collect();
    ranks.splice(..2 * rest, pairs);
    while ranks.len() > 1 {
        ranks = ranks.chunks(2).map(|pair| add(&pair[0], &pair[1])).collect();
    }
    ranks.remove(0)
}

fn bytes_of(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn sum() -> Reduction {
    Reduction::new(Datatype::Float64, Operation::Sum).unwrap()
}

async fn allreduced(comm: Arc<Comm>, elements: usize, is_in_place: bool) -> Result<Vec<u8>> {
    let own = bytes_of(&given(comm.rank(), elements));
    let mut into = if is_in_place { own.clone() } else { vec![1; own.len()] };
    let task = comm.collective(Kind::of(What::Allreduce).with(&sum()));
    comm.allreduce_of(&task, (!is_in_place).then_some(&own), &mut into, &sum()).await?;
    Ok(into)
}

async fn reduced(comm: Arc<Comm>, root: u32, elements: usize) -> Result<Option<Vec<u8>>> {
    let own = bytes_of(&given(comm.rank(), elements));
    let mut into = vec![1; own.len()];
    let is_root = comm.rank() == root;
    let task = comm.collective(Kind::of(What::Reduce).at(root).with(&sum()));
    let into_if_root = is_root.then_some(&mut into[..]);
    comm.reduce_of(&task, root, (Some(&own), into_if_root), &sum()).await?;
    Ok(is_root.then_some(into))
}

#[test]
fn sums_have_the_same_bits_on_all_ranks_whichever_way_they_are_computed() {
    for size in (1..=18).chain([32, 45]) {
        for elements in [0, 1, 3, 200, 2000, 9000] {
            let sum = bytes_of(&expected(size, elements));
            for place in PLACES {
                let is_in_place = elements % 2 == 1;
                let (all, _) = simulate(size, place, |comm| allreduced(comm, elements, is_in_place));
                assert!(all.iter().all(|one| *one == sum), "{size} ranks, {elements} elements, {place:?}");
                let root = size / 2;
                let (all, _) = simulate(size, place, |comm| reduced(comm, root, elements));
                assert!(all.iter().flatten().eq([&sum]), "{size} ranks, {elements} elements, {place:?}");
            }
        }
    }
}

#[test]
fn a_broadcast_reaches_all() {
    for size in (1..=18).chain([32, 45, 300]) {
        for (place, bytes) in PLACES.into_iter().flat_map(|place| [(place, 8), (place, 20_000)]) {
            let root = size / 3;
            let (all, counts) = simulate(size, place, |comm| async move {
                let mut into = vec![comm.rank() as u8; bytes];
                let task = comm.collective(Kind::of(What::Bcast).at(root));
                comm.bcast_of(&task, root, &mut into).await.map(|()| into)
            });
            assert!(all.iter().all(|into| *into == vec![root as u8; bytes]));
            assert_eq!(counts.messages, size as usize - 1);
        }
    }
}

#[test]
fn nobody_leaves_a_barrier_before_all_have_come() {
    for size in (1..=18).chain([32, 45, 300]) {
        for place in PLACES {
            let come = AtomicUsize::new(0);
            simulate(size, place, |comm| {
                let come = &come;
                async move {
                    come.fetch_add(1, Ordering::Relaxed);
                    let task = comm.collective(Kind::of(What::Barrier));
                    comm.barrier_of(&task).await?;
                    assert_eq!(come.load(Ordering::Relaxed), size as usize);
                    Ok(())
                }
            });
        }
    }
}

/// The table of `docs/comm.md`: the sizes of table II of the paper of Colza, at its 512 ranks.
#[test]
fn the_documentation_tells_the_messages_of_512_ranks() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/comm.md");
    let page = std::fs::read_to_string(page).unwrap();
    let sizes = [("8 B", 8), ("128 B", 128), ("2 KiB", 2 << 10), ("16 KiB", 16 << 10), ("32 KiB", 32 << 10)];
    for (name, bytes) in sizes.into_iter().chain([("1 MiB", 1 << 20)]) {
        let (_, Counts { messages, rounds, busiest, .. }) = simulate(512, Where::Apart, |comm| async move {
            let xor = Reduction::new(Datatype::UInt64, Operation::BitXor)?;
            let own = (u64::from(comm.rank()) + 1).to_ne_bytes().repeat(bytes / 8);
            let mut into = vec![0; bytes];
            let task = comm.collective(Kind::of(What::Reduce).at(0).with(&xor));
            let into_if_root = (comm.rank() == 0).then_some(&mut into[..]);
            comm.reduce_of(&task, 0, (Some(&own), into_if_root), &xor).await?;
            let all = if comm.rank() == 0 { 512u64 } else { 0 };
            assert_eq!(into, all.to_ne_bytes().repeat(bytes / 8));
            Ok(())
        });
        let row = format!("| {name} | {messages} | {rounds} | {busiest} |");
        assert!(page.contains(&row), "docs/comm.md lacks the row: {row}");
    }
}
