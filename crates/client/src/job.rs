//! What names the job of this process, so that ranks of two jobs do not make one run.
//!
//! What the launcher says is used where every process of one start is told the same, and no other start is: the namespace of
//! PMIx (Open MPI 5, PRRTE, jsrun, and Slurm with its plugin), the number that Open MPI had before, the number of a Slurm step, and of
//! a job of PALS, ALPS or Flux. Hydra (MPICH, Intel MPI) names nothing. Where all its ranks are on one host, the process that
//! has started them there names the job; else nothing does, and the user's `job`, or a name that the ranks agree on by MPI, has to.

use std::env;
use std::fs;
use std::hash::{BuildHasher, RandomState};

/// How many processes up a launcher is looked for.
const ANCESTORS_MAX: usize = 32;
/// The process of Hydra that starts the ranks of one host.
const HYDRA_PROXY: &str = "hydra_pmi_proxy";
/// Variables that name a job, by the launcher that sets them.
const LAUNCHERS: [(&str, &[&str]); 6] = [
    ("PMIx", &["PMIX_NAMESPACE"]),
    ("Open MPI", &["OMPI_MCA_ess_base_jobid"]),
    ("Slurm", &["SLURM_JOB_ID", "SLURM_STEP_ID"]),
    ("PALS", &["PALS_APID"]),
    ("ALPS", &["ALPS_APP_ID"]),
    ("Flux", &["FLUX_JOB_ID"]),
];

/// The job's name: what the user gave, else what the launcher of this process says; empty if nothing says it.
pub(crate) fn of_this_process(given: Option<&str>) -> String {
    given.map(str::to_owned).or_else(|| launched(|name| env::var(name).ok())).unwrap_or_default()
}

/// The job of this process, as its launcher names it to all of its processes alike; empty if none does.
pub fn job_name() -> String {
    of_this_process(None)
}

/// A name that no other job has, for rank 0 to tell the other ranks of a job. Does not wait.
pub fn new_job_name() -> String {
    let random = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", random(), random())
}

fn launched(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    for (launcher, names) in LAUNCHERS {
        let values: Option<Vec<String>> = names.iter().map(|name| set(name)).collect();
        if let Some(values) = values {
            return Some(format!("{launcher} {}", values.join(".")));
        }
    }
    let all_here = set("PMI_SIZE").is_some_and(|size| set("MPI_LOCALNRANKS") == Some(size));
    let proxy = if all_here { hydra_proxy() } else { None };
    proxy.map(|(pid, since)| format!("Hydra process {pid} since {since} on {}", crate::identity::host()))
}

/// The process of Hydra that has started this one, and since when it runs, in ticks of the kernel.
fn hydra_proxy() -> Option<(u32, u64)> {
    let mut pid = std::process::id();
    for _ in 0..ANCESTORS_MAX {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (name, parent, since) = process(&stat)?;
        if name == HYDRA_PROXY {
            return Some((pid, since));
        }
        pid = parent;
    }
    None
}

/// Name, parent and start of a process, as the kernel writes them in `/proc/PID/stat` (see proc(5)): fields 2, 4 and 22. The name may
/// hold anything, parentheses too.
fn process(stat: &str) -> Option<(&str, u32, u64)> {
    let (_, rest) = stat.split_once('(')?;
    let (name, rest) = rest.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some((name, fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Option<String> {
        let value = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        launched(value)
    }

    #[test]
    fn a_job_is_named_by_what_all_its_processes_are_told() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("PMIX_NAMESPACE", "prterun-n1-77@1")]).unwrap(), "PMIx prterun-n1-77@1");
        let slurm = [("SLURM_JOB_ID", "12"), ("SLURM_STEP_ID", "3")];
        assert_eq!(of(&slurm).unwrap(), "Slurm 12.3");
        assert_eq!(of(&slurm[..1]), None, "a job of Slurm may start many programs");
        assert_eq!(of(&[("PMIX_NAMESPACE", ""), slurm[0], slurm[1]]).unwrap(), "Slurm 12.3");
        assert_eq!(of(&[("PMI_SIZE", "8"), ("MPI_LOCALNRANKS", "4")]), None, "Hydra's ranks on two hosts");
    }

    #[test]
    fn a_process_is_read_from_what_the_kernel_says() {
        let rest: Vec<String> = (5..=30).map(|n| n.to_string()).collect();
        let stat = format!("42 (a) (b) S 7 {}", rest.join(" "));
        assert_eq!(process(&stat), Some(("a) (b", 7, 22)));
        assert_eq!(process("42 (a"), None);
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        assert!(process(&own).is_some_and(|(_, parent, since)| parent > 0 && since > 0));
    }

    #[test]
    fn new_names_differ() {
        assert_ne!(new_job_name(), new_job_name());
        assert_eq!(new_job_name().len(), 32);
    }
}
