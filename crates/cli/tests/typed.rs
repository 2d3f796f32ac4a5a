//! The client in Rust, with a server of its own: values have their dtype, and nothing else is put or read.
#![allow(clippy::unwrap_used)] // a test

use forebay_client::core::block::Extent;
use forebay_client::core::contract::Field;
use forebay_client::core::dtype::Dtype;
use forebay_client::core::region::Region;
use forebay_client::{
    Admin, Attr, AttrValues, Block, Consumer, ConsumerOptions, ErrorKind, GroupOptions, Outcome, Producer,
    ProducerOptions, Selection, Source, Space, SpaceOptions, SpacePut, Target, TransportChoice,
};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server in a directory of its own; ended with its life.
struct Group {
    options: GroupOptions,
    server: Child,
    _directory: tempfile::TempDir,
}

impl Group {
    fn start() -> Group {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("group.json");
        let server = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["serve", "--servers", "1", "--bind", "127.0.0.1", "--budget", "64M", "--watch-parent"])
            .arg(std::process::id().to_string())
            .arg("--group")
            .arg(&path)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let timeout = Some(Duration::from_secs(20));
        let group = Some(path.to_str().unwrap().to_owned());
        let options = GroupOptions { group, timeout, ..GroupOptions::default() };
        let started = std::time::Instant::now();
        while Admin::open(&options).and_then(|admin| admin.status()).is_err() {
            assert!(started.elapsed() < Duration::from_secs(20), "the server does not start");
            std::thread::yield_now();
        }
        Group { options, server, _directory: directory }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn block(number: u64, offset: &[u64], shape: &[u64]) -> Block<'static> {
    Block { field: "U", number, level: 0, extent: Extent::new(Some(offset), shape, &[], &[]).unwrap() }
}

#[test]
fn what_is_put_and_read_has_the_fields_dtype() {
    let group = Group::start();
    for transport in [TransportChoice::Shm, TransportChoice::Tcp] {
        let options = GroupOptions { transport, ..group.options.clone() };
        let stream = format!("{transport:?}");
        let reader =
            Consumer::open(&ConsumerOptions { group: options.clone(), ..ConsumerOptions::new(&stream) })
                .unwrap();
        let sim =
            Producer::open(&ProducerOptions { group: options, ..ProducerOptions::new(&stream) }).unwrap();
        sim.array(Field::new("U", Dtype::F32, Some(&[3, 500]), 2)).unwrap();
        let dt = Attr { list: false, values: AttrValues::Float(vec![0.5]) };
        sim.attr(None, "dt", dt.clone()).unwrap();
        sim.begin(0, 0.0).unwrap();
        let values: Vec<f32> = (0..1500).map(|i| i as f32).collect();

        // Another dtype of the same size, one of another size, which would reach beyond the block's memory, and
        // bytes that do not say what they are.
        let integers = vec![1i32; 1500];
        assert_eq!(
            sim.put_values(&block(0, &[0, 0], &[3, 500]), &integers).unwrap_err().kind,
            ErrorKind::TypeMismatch
        );
        let doubles = vec![1f64; 1500];
        let error = sim.put_values(&block(0, &[0, 0], &[3, 500]), &doubles).unwrap_err();
        assert_eq!(error.kind, ErrorKind::TypeMismatch);
        assert!(error.text.contains("'U' is float32, the array is float64"), "{error}");
        let bytes = vec![0u8; 6000];
        let untold = Source::from_slice(&bytes, &[3, 500], 4).unwrap();
        assert_eq!(sim.put(&block(0, &[0, 0], &[3, 500]), &untold).unwrap_err().kind, ErrorKind::Invalid);
        assert_eq!(
            sim.put_async(&block(0, &[0, 0], &[3, 500]), &untold).unwrap_err().kind,
            ErrorKind::Invalid
        );
        assert_eq!(
            sim.put_values(&block(0, &[0, 0], &[3, 500]), &values[1..]).unwrap_err().kind,
            ErrorKind::OutOfBounds
        );

        // None of that used up the number.
        assert_eq!(sim.put_values(&block(0, &[0, 0], &[1, 500]), &values[..500]).unwrap(), Outcome::Staged);
        let rest = Source::of(&values[500..], &[2, 500]).unwrap();
        assert_eq!(sim.put_async(&block(1, &[1, 0], &[2, 500]), &rest).unwrap(), Outcome::Staged);
        assert_eq!(sim.wait().unwrap(), 0);
        sim.end().unwrap();

        let step = reader.next_step(None).unwrap();
        assert_eq!(step.attrs().get(None, "dt"), Some(&dt));
        let whole = Selection::region(&Region::whole(&[3, 500]).unwrap());
        assert_eq!(step.read_values::<f32>("U", &whole).unwrap(), values);
        let some =
            Selection { offset: [1, 2][..].into(), shape: [2, 100][..].into(), step: [1, 4][..].into() };
        let picked = step.read_values::<f32>("U", &some).unwrap();
        assert_eq!((picked[0], picked[199]), (502.0, 1398.0));
        assert_eq!(step.read_values::<i32>("U", &whole).unwrap_err().kind, ErrorKind::TypeMismatch);
        let huge = Selection { shape: [1 << 40, 1 << 20][..].into(), ..whole.clone() };
        assert_eq!(step.read_values::<f32>("U", &huge).unwrap_err().kind, ErrorKind::OutOfBounds);
        let mut out = vec![0u8; 6000];
        let mut untold = Target::from_slice(&mut out, &[3, 500], 4).unwrap();
        assert_eq!(step.read("U", &whole, &mut untold).unwrap_err().kind, ErrorKind::Invalid);
        let mut told = untold.typed(Dtype::F32).unwrap();
        step.read("U", &whole, &mut told).unwrap();
        assert_eq!(out[4..8], 1f32.to_le_bytes());
        sim.close().unwrap();
    }
}

#[test]
fn the_space_has_dtypes_too() {
    let group = Group::start();
    let space = Space::open(&SpaceOptions::new(group.options.clone())).unwrap();
    let field = Field::new("T", Dtype::C128, Some(&[4]), 1);
    let extent = Extent::new(Some(&[0]), &[4], &[], &[]).unwrap();
    let put = SpacePut { field, step: 3, extent };
    let values = [[1.0, -1.0], [2.0, -2.0], [3.0, -3.0], [4.0, -4.0]];
    let pairs = [[1f32, 2.0]; 4];
    let wrong = Source::of(&pairs, &[4]).unwrap();
    assert_eq!(space.put(&put, &wrong).unwrap_err().kind, ErrorKind::TypeMismatch);
    space.put(&put, &Source::of(&values, &[4]).unwrap()).unwrap();
    let region = Region::new(&[1], &[2]).unwrap();
    let found = space.find("T", 3, &region, Duration::from_secs(5)).unwrap();
    let mut out = [[0f64; 2]; 2];
    found.read(&Selection::region(&region), &mut Target::of(&mut out, &[2]).unwrap()).unwrap();
    assert_eq!(out, values[1..3]);
}
