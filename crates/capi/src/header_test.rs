//! Compares this crate with `include/forebay.h`: a C compiler is given the header and, generated from the
//! Rust, an assertion for each struct, member and number and a second declaration of each function. It
//! refuses what differs.

use crate::abi;
use forebay_client::ErrorKind;
use forebay_client::core::dtype::Dtype;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::mem::size_of;
use std::path::Path;
use std::process::Command;

const HEADER: &str =
    concat!(include_str!("../../../include/forebay.h"), include_str!("../../../include/forebay_comm.h"));
const SOURCES: [&str; 17] = [
    include_str!("compositing.rs"),
    include_str!("collectives.rs"),
    include_str!("collectives/aside.rs"),
    include_str!("comm.rs"),
    include_str!("admin.rs"),
    include_str!("attributes.rs"),
    include_str!("producer.rs"),
    include_str!("pipeline.rs"),
    include_str!("consumer.rs"),
    include_str!("step.rs"),
    include_str!("fields.rs"),
    include_str!("rows.rs"),
    include_str!("stream.rs"),
    include_str!("value.rs"),
    include_str!("subscription.rs"),
    include_str!("space.rs"),
    include_str!("general.rs"),
];

/// Adds the assertions about one struct.
macro_rules! assert_struct {
    ($out:ident, $($name:ident)*) => { $({
        let _ = writeln!($out, "_Static_assert(sizeof({0}) == {1}, \"size of {0}\");", stringify!($name), size_of::<abi::$name>());
        let mut end = 0;
        for (member, offset, size) in abi::$name::MEMBERS {
            let at = format!("offsetof({}, {member}) == {offset}", stringify!($name));
            let _ = writeln!($out, "_Static_assert({at}, \"{member}\");");
            let _ = writeln!($out, "_Static_assert(sizeof((({} *)0)->{member}) == {size}, \"{member}\");", stringify!($name));
            assert_eq!(end, *offset, "no padding before {member} of {}", stringify!($name));
            end = offset + size;
        }
        assert_eq!(end, size_of::<abi::$name>(), "no padding at the end of {}", stringify!($name));
        assert!(<abi::$name as abi::Sized64>::FIRST <= end);
    })* };
}

/// A Rust type as C writes it.
fn c_type(rust: &str) -> String {
    match rust.trim() {
        pointer if pointer.starts_with("*const ") => match c_type(&pointer[7..]) {
            to if to.ends_with('*') => format!("{to}const *"),
            to => format!("const {to} *"),
        },
        pointer if pointer.starts_with("*mut ") => format!("{} *", c_type(&pointer[5..])),
        "Option<fb_comm_function>" => "fb_comm_function *".into(),
        "c_int" => "int".into(),
        "c_char" => "char".into(),
        "c_void" => "void".into(),
        "i32" => "int32_t".into(),
        "i64" => "int64_t".into(),
        "u32" => "uint32_t".into(),
        "u64" => "uint64_t".into(),
        "f64" => "double".into(),
        own => own.into(),
    }
}

/// Every function as C declares it, by name.
fn declarations() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for source in SOURCES {
        for part in source.split("extern \"C\" fn ").skip(1) {
            let (signature, _) = part.split_once(" {\n").unwrap();
            let (name, rest) = signature.split_once('(').unwrap();
            let (arguments, result) = rest.rsplit_once(')').unwrap();
            let list: Vec<String> = arguments
                .split(',')
                .filter_map(|argument| argument.split_once(':'))
                .map(|(_, kind)| c_type(kind))
                .collect();
            let list = if list.is_empty() { "void".to_owned() } else { list.join(", ") };
            let result = result.trim().strip_prefix("->").map_or("void".to_owned(), c_type);
            found.push((name.to_owned(), format!("{result} {name}({list});")));
        }
    }
    found
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let code: String =
        HEADER.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
    let before: Vec<&str> = code.split('(').collect();
    let names =
        before.iter().filter_map(|text| text.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next());
    names.filter(|name| name.starts_with("fb_")).map(str::to_owned).collect()
}

/// What each member of each struct was when it was first written down: of later ones lines are added, none is changed.
const LAYOUT: &str = include_str!("../../../include/forebay.layout");

/// Programs that were built against an earlier header pass their structs as they were.
#[test]
fn structs_only_grow() {
    let mut lines = Vec::new();
    let mut add = |name: &str, members: &[(&str, usize, usize)]| {
        lines.extend(members.iter().map(|(member, at, size)| format!("{name}.{member} {at} {size}")));
    };
    macro_rules! each { ($($name:ident)*) => { $(add(stringify!($name), abi::$name::MEMBERS);)* } }
    each!(fb_to_place fb_producer_options fb_field fb_attribute fb_block fb_need fb_consumer_options fb_step_info
        fb_field_info fb_selection fb_view fb_stats fb_space_options fb_admin_options fb_pipeline_options
        fb_value fb_subscription_options fb_event_info);
    let now = lines.join("\n");
    assert_eq!(now, LAYOUT.trim_end(), "add new members to include/forebay.layout; none may move:\n{now}");
}

#[test]
fn the_header_is_what_was_built() {
    let functions = declarations();
    let built: BTreeSet<String> = functions.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(built, declared());

    let mut c = String::from("#include \"forebay.h\"\n#include \"forebay_comm.h\"\n");
    assert_struct!(c, fb_to_place fb_producer_options fb_field fb_attribute fb_block fb_need fb_consumer_options fb_step_info
        fb_field_info fb_selection fb_view fb_stats fb_space_options fb_admin_options fb_pipeline_options
        fb_value fb_subscription_options fb_event_info);
    let version =
        [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")];
    for (part, number) in ["MAJOR", "MINOR", "PATCH"].iter().zip(version) {
        let _ = writeln!(c, "_Static_assert(FB_VERSION_{part} == {number}, \"{part}\");");
    }
    for (name, number) in abi::NUMBERS {
        let _ = writeln!(c, "_Static_assert({name} == {number}, \"{name}\");");
    }
    for dtype in Dtype::ALL {
        let name = format!("FB_{}", format!("{dtype:?}").to_uppercase());
        let _ = writeln!(c, "_Static_assert({name} == {}, \"{name}\");", dtype as i32);
    }
    for kind in ErrorKind::ALL {
        let name = kind.c_name().to_string_lossy();
        let _ = writeln!(c, "_Static_assert({name} == {}, \"{name}\");", kind.code());
    }
    for (_, declaration) in &functions {
        let _ = writeln!(c, "{declaration}");
    }

    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("header.c");
    std::fs::write(&source, &c).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let compiler = Command::new("cc")
        .args(["-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .args([&include, &source])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&compiler.stderr);
    assert!(compiler.status.success(), "forebay.h differs from the library:\n{said}\n{c}");
}
