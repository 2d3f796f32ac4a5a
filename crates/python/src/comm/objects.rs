//! Objects as bytes, of which no rank knows how many another one gives: they say so first.

use forebay_client::comm::Comm;
use forebay_client::{Error, Result};

/// Bytes of a length.
const LENGTH: usize = 8;

fn lengths(items: &[impl AsRef<[u8]>]) -> Vec<u8> {
    items.iter().flat_map(|item| (item.as_ref().len() as u64).to_le_bytes()).collect()
}

fn told(lengths: &[u8]) -> Result<Vec<usize>> {
    let one =
        |bytes: &[u8]| usize::try_from(u64::from_le_bytes(bytes.first_chunk().copied().unwrap_or_default()));
    let all = lengths.chunks_exact(LENGTH).map(one).collect::<std::result::Result<Vec<usize>, _>>();
    all.map_err(|_| Error::protocol("a rank gives more bytes than this machine can count"))
}

fn one_after_the_other(items: &[impl AsRef<[u8]>]) -> Vec<u8> {
    items.iter().flat_map(|item| item.as_ref()).copied().collect()
}

/// Gives each rank its item of the root's.
pub(super) fn scatter(comm: &Comm, root: u32, items: Option<&[impl AsRef<[u8]>]>) -> Result<Vec<u8>> {
    let mut length = [0; LENGTH];
    let (all, counts) =
        items.map_or((Vec::new(), Vec::new()), |items| (lengths(items), vec![LENGTH; items.len()]));
    comm.scatter(root, &all, &counts, &mut length)?;
    let mut mine = vec![0; told(&length)?.into_iter().sum()];
    let (all, counts) = match items {
        Some(items) => (one_after_the_other(items), items.iter().map(|item| item.as_ref().len()).collect()),
        None => (Vec::new(), Vec::new()),
    };
    comm.scatter(root, &all, &counts, &mut mine)?;
    Ok(mine)
}

/// Gives each rank its item of every rank's.
pub(super) fn alltoall(comm: &Comm, items: &[impl AsRef<[u8]>]) -> Result<Vec<Vec<u8>>> {
    let mut theirs = vec![0; LENGTH * comm.size() as usize];
    comm.alltoall(&lengths(items), &mut theirs)?;
    let expected = told(&theirs)?;
    let mut all = vec![0; expected.iter().sum()];
    let sent: Vec<usize> = items.iter().map(|item| item.as_ref().len()).collect();
    comm.alltoallv((&one_after_the_other(items), &sent), (&mut all, &expected))?;
    let mut rest = &all[..];
    Ok(expected
        .into_iter()
        .map(|count| {
            let (item, others) = rest.split_at(count);
            rest = others;
            item.to_vec()
        })
        .collect())
}
