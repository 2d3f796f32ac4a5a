//! What a server tells of itself has the members that are declared, and no others.

use crate::{Group, PATIENCE};
use forebay_client::status::{GroupStatus, ServerStatus, StreamStatus};
use forebay_client::{Admin, Attr, AttrValues, Block, Consumer, ConsumerOptions, Producer, ProducerOptions};
use forebay_core::block::Extent;
use forebay_core::contract::{Field, Need, Needs};
use forebay_core::dtype::Dtype;
use forebay_wire::client::admin;
use forebay_wire::connection::Role;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The members that a type does not have, or that it has and are not told.
fn differences<T: Serialize + DeserializeOwned>(told: &Value) -> Vec<String> {
    let typed: T = serde_json::from_value(told.clone()).unwrap();
    let (mut found, mut pairs) =
        (Vec::new(), vec![("".to_owned(), told.clone(), serde_json::to_value(typed).unwrap())]);
    while let Some((place, told, typed)) = pairs.pop() {
        match (told, typed) {
            (Value::Object(told), Value::Object(typed)) => {
                found.extend(
                    told.keys()
                        .filter(|key| !typed.contains_key(*key))
                        .map(|key| format!("{place}.{key}: undeclared")),
                );
                found.extend(
                    typed
                        .keys()
                        .filter(|key| !told.contains_key(*key))
                        .map(|key| format!("{place}.{key}: untold")),
                );
                let both = told.into_iter().filter_map(|(key, told)| {
                    let typed = typed.get(&key)?.clone();
                    Some((format!("{place}.{key}"), told, typed))
                });
                pairs.extend(both);
            }
            (Value::Array(told), Value::Array(typed)) => {
                let items = told.into_iter().zip(typed).enumerate();
                pairs.extend(items.map(|(index, (told, typed))| (format!("{place}[{index}]"), told, typed)));
            }
            (told, typed) if told != typed => found.push(format!("{place}: {told} as {typed}")),
            _ => {}
        }
    }
    found.sort();
    found
}

#[test]
fn what_is_told_is_declared() {
    let group = Group::start(1);
    let options = ProducerOptions { group: group.options(), ..ProducerOptions::new("s") };
    let sim = Producer::open(&options).unwrap();
    sim.array(Field::new("U", Dtype::F64, Some(&[4]), 1)).unwrap();
    sim.attr(None, "dt", Attr { values: AttrValues::Float(vec![0.5]), list: false }).unwrap();
    let needs = Needs::Fields(vec![Need::new("U")]);
    let options = |needs| ConsumerOptions { group: group.options(), needs, ..ConsumerOptions::new("s") };
    let some = Consumer::open(&options(needs)).unwrap();
    let all = Consumer::open(&options(Needs::all(2))).unwrap();
    sim.begin(0, f64::NAN).unwrap();
    let extent = Extent::new(Some(&[0]), &[4], &[], &[]).unwrap();
    sim.put_values(&Block { field: "U", number: 0, level: 0, extent }, &[1.0, 2.0, 3.0, 4.0]).unwrap();
    sim.end().unwrap();
    let step = some.next_step(Some(PATIENCE)).unwrap();

    let mut raw = group.connect(0, true, Role::Admin);
    let admin::Reply::Status(text) = raw.ask(&admin::Request::Status).unwrap() else { panic!() };
    let mut told: Value = serde_json::from_str(&text).unwrap();
    let server = told.as_object_mut().unwrap();
    let streams = server.remove("streams").unwrap();
    for beside in ["lost", "streams_left_out", "progress", "pipelines"] {
        assert!(server.remove(beside).is_some(), "{beside}");
    }
    // Only of one that does not answer.
    assert_eq!(differences::<ServerStatus>(&told), Vec::<String>::new());
    let stream = &streams.as_array().unwrap()[0];
    // These are put in by whoever asked: of which server it is, and what the homes of the ranks tell.
    let put_in = [".running_step: untold", ".server: untold", ".steps_per_second: untold"];
    assert_eq!(differences::<StreamStatus>(stream), put_in);

    let status = Admin::open(&group.options()).unwrap().status().unwrap();
    assert_eq!(serde_json::from_value::<GroupStatus>(status.to_json()).unwrap(), status);
    let stream = status.stream("s").unwrap();
    assert_eq!((stream.running_step, stream.last_closed, stream.held.steps), (Some(0), Some(0), 1));
    assert_eq!(stream.attrs["dt"], 0.5);
    drop(step);
    drop((some, all));
    sim.close().unwrap();
    group.stop();
}
